package databases

import "context"

// Step is a statement of a pipeline.
type Step struct {
	Statement Statement
	Values    Values
	// Each is called for every row; nil where none matters.
	Each func(Row) error
}

// Pipeliner is a Conn that sends several statements before the first is answered.
type Pipeliner interface {
	Conn
	// Pipeline runs each statement once, in their order. It returns the first error, and then no later statement has an
	// effect. A transaction that they began stays open, and what the server answered with an error fails it.
	Pipeline(ctx context.Context, steps []Step) error
}

// Pipeline runs statements, of which the first begins a transaction, and none ends one: in one round trip if on is a
// Pipeliner, and otherwise one after the other.
func Pipeline(ctx context.Context, on Session, steps ...Step) error {
	if p, ok := on.(Pipeliner); ok {
		return p.Pipeline(ctx, steps)
	}

	for _, step := range steps {
		if _, err := on.Run(ctx, step.Statement, step.Values, step.Each); err != nil {
			return err
		}
	}

	return nil
}

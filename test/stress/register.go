//go:build unix

package stress

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// register is the place outside the database where the effect of work under a lock shows: for each name a
// number and the largest token seen. Every read and write comes with a token, and one that is smaller than
// the largest is refused.
type register struct {
	listener net.Listener
	serving  sync.WaitGroup

	mutex  sync.Mutex
	values map[string]*registered
}

type registered struct {
	value, token int64
	accepted     []accepted
}

// accepted is a write that the register took.
type accepted struct{ value, token int64 }

func openRegister(ctx context.Context, socket string) (*register, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}

	r := &register{listener: listener, values: make(map[string]*registered)}
	r.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			r.serving.Go(func() { r.serve(conn) })
		}
	})

	return r, nil
}

func (r *register) close() {
	_ = r.listener.Close()
	r.serving.Wait()
}

func (r *register) serve(conn net.Conn) {
	defer conn.Close()

	lines := bufio.NewScanner(conn)

	for lines.Scan() {
		var (
			verb, name   string
			token, value int64
		)

		if _, err := fmt.Sscanf(lines.Text(), "%s %d %d %q", &verb, &token, &value, &name); err != nil {
			return
		}

		answer, ok := r.answer(verb, name, token, value)
		if _, err := fmt.Fprintf(conn, "%t %d\n", ok, answer); err != nil {
			return
		}
	}
}

func (r *register) answer(verb, name string, token, value int64) (int64, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	v := r.values[name]
	if v == nil {
		v = &registered{}
		r.values[name] = v
	}

	if token < v.token {
		return 0, false
	}

	v.token = token

	if verb == "write" {
		v.value = value
		v.accepted = append(v.accepted, accepted{value, token})
	}

	return v.value, true
}

// history returns the writes that were accepted for a name, in order.
func (r *register) history(name string) []accepted {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	if v := r.values[name]; v != nil {
		return v.accepted
	}

	return nil
}

// registerClient is one connection to the register, of one goroutine.
type registerClient struct {
	conn  net.Conn
	lines *bufio.Reader
}

func dialRegister(ctx context.Context, socket string) (*registerClient, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}

	return &registerClient{conn, bufio.NewReader(conn)}, nil
}

// registerTimeout is far longer than the register takes, also on a machine that has much to do.
const registerTimeout = time.Minute

// ask sends one request and returns the value, and whether it was accepted.
func (c *registerClient) ask(verb, name string, token, value int64) (int64, bool, error) {
	err := c.conn.SetDeadline(time.Now().Add(registerTimeout))
	if err == nil {
		_, err = fmt.Fprintf(c.conn, "%s %d %d %q\n", verb, token, value, name)
	}

	if err != nil {
		return 0, false, err
	}

	line, err := c.lines.ReadString('\n')
	if err != nil {
		return 0, false, err
	}

	var ok bool

	_, err = fmt.Sscanf(line, "%t %d", &ok, &value)

	return value, ok, err
}

package sqllock_test

import (
	"context"
	"testing"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// BenchmarkPair is what the client takes for a lock that nobody else wants, without a database.
func BenchmarkPair(b *testing.B) {
	for what, acquire := range pairs {
		b.Run(what, func(b *testing.B) {
			locker, err := sqllock.New(sqllocktest.NewMemory())
			if err != nil {
				b.Fatal(err)
			}

			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()

			b.ReportAllocs()

			for b.Loop() {
				lock, err := acquire(locker, ctx, name)
				if err != nil {
					b.Fatal(err)
				}

				if err := lock.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

var pairs = map[string]func(*sqllock.Locker, context.Context, string, ...sqllock.Option) (*sqllock.Lock, error){
	"Acquire":    (*sqllock.Locker).Acquire,
	"TryAcquire": (*sqllock.Locker).TryAcquire,
}

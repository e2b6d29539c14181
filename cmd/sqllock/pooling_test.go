package main

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// pooler is a proxy that gives a session of the server to a client for one
// transaction, as PgBouncer does with pool_mode=transaction. It knows nothing of
// prepared statements.
type pooler struct {
	tb       testing.TB
	listener net.Listener
	byTurns  bool // the session that is free for longest, not the latest
	// parameters are what the server tells each client of itself.
	parameters map[string]string

	mu   sync.Mutex
	some *sync.Cond
	free []*pgconn.HijackedConn
}

// pooling returns the URL of a database through a proxy with so many sessions.
func pooling(tb testing.TB, text string, sessions int, byTurns bool) string {
	tb.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}

	p := &pooler{tb: tb, listener: listener, byTurns: byTurns}
	p.some = sync.NewCond(&p.mu)

	var clients sync.WaitGroup

	for range sessions {
		conn, err := pgconn.Connect(tb.Context(), text)
		if err != nil {
			tb.Fatal(err)
		}

		// A slow write has started a reader in the background.
		if err := conn.SyncConn(tb.Context()); err != nil {
			tb.Fatal(err)
		}

		session, err := conn.Hijack()
		if err != nil {
			tb.Fatal(err)
		}

		p.free = append(p.free, session)
		p.parameters = session.ParameterStatuses

		tb.Cleanup(func() { _ = session.Conn.Close() })
	}

	clients.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			clients.Go(func() { p.serve(conn) })
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()

		clients.Wait()
	})

	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}

	u.Host = listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	q.Del("host")
	u.RawQuery = q.Encode()

	return u.String()
}

// serve serves a client until it goes.
func (p *pooler) serve(client net.Conn) {
	defer client.Close()

	if !p.greet(client) {
		return
	}

	var session *pgconn.HijackedConn

	for {
		kind, message, err := read(client)
		if err != nil || kind == 'X' {
			if session != nil {
				p.tb.Error("a client went in the middle of a transaction")
			}

			return
		}

		if session == nil {
			session = p.take()
		}

		if _, err := session.Conn.Write(message); err != nil {
			p.tb.Error(err)

			return
		}

		// The server is ready after one of these, and says if it is in a
		// transaction.
		for done := kind != 'Q' && kind != 'S'; !done; {
			answer, text, err := read(session.Conn)
			if err != nil {
				p.tb.Error(err)

				return
			}

			done = answer == 'Z'
			if done && text[5] == 'I' {
				p.give(session)
				session = nil
			}

			if _, err := client.Write(text); err != nil {
				return
			}
		}
	}
}

// greet lets a client in.
func (p *pooler) greet(client net.Conn) bool {
	backend := pgproto3.NewBackend(client, client)

	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return false
	}

	backend.Send(&pgproto3.AuthenticationOk{})

	for key, value := range p.parameters {
		backend.Send(&pgproto3.ParameterStatus{Name: key, Value: value})
	}

	backend.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})

	return backend.Flush() == nil
}

// take waits for a session that is free.
func (p *pooler) take() *pgconn.HijackedConn {
	p.mu.Lock()
	defer p.mu.Unlock()

	for len(p.free) == 0 {
		p.some.Wait()
	}

	at := len(p.free) - 1
	if p.byTurns {
		at = 0
	}

	session := p.free[at]
	p.free = slices.Delete(p.free, at, at+1)

	return session
}

func (p *pooler) give(session *pgconn.HijackedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.free = append(p.free, session)
	p.some.Signal()
}

// read reads a message, of which the first byte is the kind
// (https://www.postgresql.org/docs/current/protocol-overview.html).
func read(conn net.Conn) (kind byte, message []byte, err error) {
	const header = 5

	begin := make([]byte, header)
	if _, err := io.ReadFull(conn, begin); err != nil {
		return 0, nil, err
	}

	// The length counts itself.
	message = make([]byte, 1+binary.BigEndian.Uint32(begin[1:]))
	copy(message, begin)
	_, err = io.ReadFull(conn, message[header:])

	return message[0], message, err
}

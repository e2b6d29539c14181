package main

import (
	"syscall"
	"testing"
	"time"
)

func TestParseOnLoss(t *testing.T) {
	t.Parallel()

	const lease = 30 * time.Second

	for _, c := range []struct {
		text string
		want onLoss
	}{
		{"", onLoss{syscall.SIGTERM, 5 * time.Second}},
		{"kill", onLoss{}},
		{"term,kill", onLoss{syscall.SIGTERM, 5 * time.Second}},
		{"TERM,KILL=0.5", onLoss{syscall.SIGTERM, 500 * time.Millisecond}},
		{"term,kill=15s", onLoss{syscall.SIGTERM, 15 * time.Second}},
	} {
		if got, err := parseOnLoss(c.text, lease); err != nil || got != c.want {
			t.Errorf("parseOnLoss(%q) = %+v, %v, want %+v", c.text, got, err, c.want)
		}
	}

	for _, text := range []string{"term", "kill=5s", "term,hup", "term,kill=x", "term,kill=16s", "term,kill=0", "what,kill=1s"} {
		if got, err := parseOnLoss(text, lease); err == nil {
			t.Errorf("parseOnLoss(%q) = %+v, want an error", text, got)
		}
	}
}

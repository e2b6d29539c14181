package sqllock_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// detached returns the claim of a lock in memory.
func detached(t *testing.T, name string) sqllock.Claim {
	t.Helper()

	locker, err := sqllock.New(sqllocktest.NewMemory())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = locker.Close(t.Context()) })

	lock, err := locker.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}

	claim, err := lock.Detach(t.Context(), sqllock.DefaultLease)
	if err != nil {
		t.Fatal(err)
	}

	return claim
}

func TestParseClaim(t *testing.T) {
	t.Parallel()

	claim := detached(t, "invoices/é\x01\"")
	secret := claim.Secret()

	parsed, err := sqllock.ParseClaim("\n " + secret + "\r\n")
	if err != nil || parsed.Secret() != secret || parsed.Name() != claim.Name() || parsed.Token() != claim.Token() {
		t.Errorf("ParseClaim(Secret()) = %v, %v, want %v", parsed, err, claim)
	}

	if strings.Trim(secret, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		t.Errorf("Secret() = %q, want letters, digits, - and _", secret)
	}

	texts := map[string]string{
		"":                                   "does not begin",
		"nightly":                            "does not begin",
		"sqllock1_":                          "does not begin",
		strings.Replace(secret, "1", "2", 1): "version",
		"sqllock" + strings.Repeat("9", 1000) + "_AAAA": "version",
		"sqllock1_AAAA": "cut or changed",
		"sqllock1_****": "cut or changed",
	}

	for i := len("sqllock1_") + 1; i < len(secret); i++ {
		texts[secret[:i]] = "cut or changed"

		other := byte('A')
		if secret[i] == other {
			other = 'B'
		}

		if i < len(secret)-1 { // the last one has bits that are of no account
			texts[secret[:i]+string(other)+secret[i+1:]] = "cut or changed"
		}
	}

	for text, want := range texts {
		claim, err := sqllock.ParseClaim(text)
		if !errors.Is(err, sqllock.ErrInvalidClaim) || !strings.Contains(err.Error(), want) || len(err.Error()) > 200 || claim.Name() != "" {
			t.Errorf("ParseClaim(%.40q) = %v, %v, want an ErrInvalidClaim with %q", text, claim, err, want)
		}
	}
}

// A claim that is printed by mistake shows no secret.
func TestClaimIsSecret(t *testing.T) {
	t.Parallel()

	claim := detached(t, "invoices")
	owner := claim.Secret()[len("sqllock1_"):]

	var log bytes.Buffer

	slog.New(slog.NewJSONHandler(&log, nil)).Info("detached", "claim", claim, "in", struct{ Claim sqllock.Claim }{claim})
	slog.New(slog.NewTextHandler(&log, nil)).Info("detached", "claim", claim, "at", &claim)

	printed := log.String() + fmt.Sprint(claim, &claim, []sqllock.Claim{claim}) + fmt.Sprintf("%+v %#v %s %q %x %d", claim, claim, claim, claim, claim, claim) +
		fmt.Sprintf("%+v %#v", struct{ Claim sqllock.Claim }{claim}, struct{ Claim sqllock.Claim }{claim})

	marshaled, err := json.Marshal(claim)
	if err == nil || !strings.Contains(err.Error(), "Secret") {
		t.Errorf("json.Marshal() = %s, %v, want an error that names Secret", marshaled, err)
	}

	printed += string(marshaled) + err.Error()

	// A driver asks this, and would store what String returns otherwise.
	stored, err := claim.Value()
	if err == nil || !strings.Contains(err.Error(), "Secret") {
		t.Errorf("Value() = %v, %v, want an error that names Secret", stored, err)
	}

	if strings.Contains(printed, "detached-") || strings.Contains(printed, owner) {
		t.Errorf("the secret was printed:\n%s", printed)
	}

	if !strings.Contains(printed, `claim of lock "invoices"`) {
		t.Errorf("printed:\n%s\nwant the name of the lock", printed)
	}
}

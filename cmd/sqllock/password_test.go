package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestPasswordInTheWrongPlace has no part of a password in what is said, wherever a
// database stands on the command line, and whatever the password has in it.
func TestPasswordInTheWrongPlace(t *testing.T) {
	t.Parallel()

	url := migrated(t)

	for _, password := range []string{"S3K R3T", "S3K\tR3T", "S3K\nR3T", "S3K=R3T", "S3K,R3T", "S3K/R3T", "S3K\" R3T", "S3K@R3T", "S3K:R3T"} {
		for _, database := range []string{
			"postgres://u:" + password + "@h/d", "postgres://u:" + password + "@h1:5,h2:6/d?x=y", "postgres:/u:" + password + "@h/d",
			"postgres:u:" + password + "@h/d", "postgres//u:" + password + "@h/d", "DATABASE_URL=postgres://u:" + password + "@h/d",
			`"postgres://u:` + password + `@h/d"`, "u:" + password + "@h/d", "u:" + password + "@h:1/d", ":" + password + "@h:1/d",
			"u:" + password + "@tcp(h)/d", "host=h password=" + password, "host=h:1 password=" + password + "@h",
		} {
			for _, args := range [][]string{
				{"ls", "-" + database},
				{"ls", "-dsn=" + database},
				{"ls", "--" + database},
				{"ls", "---" + database},
				{"ls", "--dns=" + database},
				{"ls", "--dsn=" + database},
				{"ls", "--dsn-file=" + database},
				{"ls", "--require-dsn=" + database},
				{"ls", "--watch=" + database},
				{"ls", "--dsn=" + url, database},
				{database},
				{"help", database},
				{"--version=" + database},
				{"migrate", "up", database},
				{"migrate", "print", "--dialect", database},
				{"doctor", "--holders", database},
				{"doctor", "--fail-on", database},
				{"run", "--name", "a", "-v" + database, "true"},
				{"run", "--name", "a", "-n=" + database, "true"},
				{"run", "--name", "a", "-w" + database, "true"},
				{"run", "--name", "a", "-E", database, "true"},
				{"run", "--name", "a", "--lease", database, "true"},
				{"run", "--name", "a", "--on-loss", database, "true"},
				{"run", "--name", "a", "--on-loss", database + ",kill=5s", "true"},
				{"run", "--name", "a", "--on-loss", "term,kill=" + database, "true"},
				{"run", "--name", "a", "--dsn=" + url, "--strategy", database, "true"},
				{"run", "--name", "a", database},
				{"run", "--name", "a", "/dev/null/" + database},
			} {
				if said := saidOf(t, args...); strings.Contains(strings.ToUpper(said), "S3K") || strings.Contains(strings.ToUpper(said), "R3T") {
					t.Errorf("%q shows the password: %s", args, said)
				}
			}
		}
	}
}

// saidOf is what the command prints and what its error says.
func saidOf(t *testing.T, args ...string) string {
	t.Helper()

	var printed bytes.Buffer

	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&printed)
	root.SetErr(&printed)
	refuseUnknown(root)

	_, said := outcome(root.ExecuteContextC(t.Context()))

	return printed.String() + said
}

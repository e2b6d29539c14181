package main

import (
	"crypto/rand"
	"encoding/json"
	neturl "net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// restrict makes a user who may connect and look at nothing, and returns the URL
// with it.
func restrict(t *testing.T, owner string) (user, url string) {
	t.Helper()

	u, err := neturl.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}

	user = "app_" + strings.ToLower(rand.Text()[:10])
	u.User = neturl.UserPassword(user, "restricted")

	if u.Scheme == "mysql" {
		executeOn(t, owner, "CREATE USER "+user+" IDENTIFIED BY 'restricted'")
		// Or it could not connect to the database.
		executeOn(t, owner, "GRANT CREATE VIEW ON "+strings.TrimPrefix(u.Path, "/")+".* TO "+user)
		t.Cleanup(func() { executeOn(t, owner, "DROP USER "+user) })
	} else {
		executeOn(t, owner, "CREATE ROLE "+user+" LOGIN PASSWORD 'restricted'")
		t.Cleanup(func() {
			executeOn(t, owner, "DROP OWNED BY "+user)
			executeOn(t, owner, "DROP ROLE "+user)
		})
	}

	return user, u.String()
}

// TestDoctorPrintsGrants runs the statements that the doctor prints.
func TestDoctorPrintsGrants(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			owner := migratedOn(t, name)
			user, app := restrict(t, owner)

			diagnosed(t, run(t, app, "doctor"), 1, "error rights the user lacks")

			for _, strategy := range []string{"cas", "insert", "forupdate", "advisory"} {
				i := run(t, app, "run", "--name", "n", "--strategy", strategy, "--", "true")
				i.want(exitUnavailable)

				if said := i.stderr.String(); !strings.Contains(said, "sqllock doctor") || !strings.Contains(said, "denied") {
					t.Errorf("run --strategy %s said %q, want what is denied, and the doctor", strategy, said)
				}
			}

			all := "ALL TABLES IN SCHEMA public"
			if name != "postgres" {
				all = "*"
			}

			executeOn(t, owner, "GRANT SELECT ON "+all+" TO "+user)
			diagnosed(t, run(t, app, "doctor"), 1, "error rights the user lacks INSERT, UPDATE on sqllock_floor")
			run(t, app, "run", "--name", "n", "--", "true").want(exitUnavailable)

			for _, statement := range grantsOf(t, run(t, app, "doctor", "--json")) {
				executeOn(t, owner, statement)
			}

			i := run(t, app, "doctor")
			diagnosed(t, i, 0, "ok rights")

			if strings.Contains(diagnosis(i), "could not be looked at") {
				t.Errorf("the doctor said:\n%s", i.stdout.String())
			}

			for _, strategy := range []string{"cas", "insert", "forupdate", "advisory"} {
				run(t, app, "run", "--name", "n", "--strategy", strategy, "--", "true").want(0)
			}

			for _, strategy := range []string{"cas", "insert", "forupdate"} {
				run(t, app, "run", "--shared", "--name", "n", "--strategy", strategy, "--", "true").want(0)
			}
		})
	}
}

// grantsOf are the statements in what the doctor says of rights.
func grantsOf(t *testing.T, doctor *invocation) []string {
	t.Helper()

	type finding struct {
		Check      string
		Statements []string
	}

	var findings []finding
	if err := json.Unmarshal([]byte(doctor.stdout.String()), &findings); err != nil {
		t.Fatal(err)
	}

	at := slices.IndexFunc(findings, func(f finding) bool { return f.Check == "rights" })
	if at < 0 {
		t.Fatalf("nothing of rights in %s", doctor.stdout.String())
	}

	return findings[at].Statements
}

// TestGrantsFromAnywhere: what the doctor prints is complete lines that mean the same with any search_path.
func TestGrantsFromAnywhere(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			owner := freshDatabase(t, name)
			tables := owner

			if name == "postgres" {
				executeOn(t, owner, `CREATE SCHEMA "Locks"`)
				tables = withParameter(t, owner, "search_path", `"Locks"`)
			}

			run(t, tables, "migrate", "up").want(0)

			_, app := restrict(t, tables)

			// First the schema, and then what is in it.
			for range 2 {
				for line := range strings.Lines(run(t, app, "doctor").stdout.String()) {
					if statement := strings.TrimSpace(line); strings.HasPrefix(statement, "GRANT ") {
						executeOn(t, owner, statement)
					}
				}
			}

			diagnosed(t, run(t, app, "doctor"), 0, "ok rights")
		})
	}
}

// TestUnseenVersions are those of a user who may use the tables, as the documentation
// has it, and of one who may see none of them: MySQL shows them no table.
func TestUnseenVersions(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			owner := migratedOn(t, name)
			_, app := restrict(t, owner)

			unseen := func() *invocation {
				run(t, app, "migrate", "status").want(exitUnavailable, "; migrate as the owner of the tables, or GRANT SELECT ON sqllock_goose_version: ", "denied")

				i := run(t, app, "doctor")
				if said := diagnosis(i); strings.Contains(said, "tables are missing") {
					t.Errorf("the doctor said:\n%s", said)
				}

				return i
			}

			diagnosed(t, unseen(), 1, "error rights the user lacks")

			for _, statement := range grantsOf(t, run(t, app, "doctor", "--json")) {
				executeOn(t, owner, statement)
			}

			diagnosed(t, unseen(), 0, "ok rights", "ok schema the tables are there; this user may not read their version")
		})
	}
}

// TestDoctorSeesTheSchema: tables that the user may not use seem to be missing.
func TestDoctorSeesTheSchema(t *testing.T) {
	t.Parallel()

	owner := freshDatabase(t, "postgres")
	executeOn(t, owner, "CREATE SCHEMA locks")

	path := withParameter(t, owner, "search_path", "locks")
	run(t, path, "migrate", "up").want(0)

	user, app := restrict(t, path)
	diagnosed(t, run(t, app, "doctor"), 1, "error rights the tables are in schema locks", "GRANT USAGE ON SCHEMA locks TO "+user)
}

// TestDoctorTellsOfTheEncoding of a database that the library refuses.
func TestDoctorTellsOfTheEncoding(t *testing.T) {
	t.Parallel()

	owner := freshDatabase(t, "postgres")

	u, err := neturl.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}

	u.Path += "_latin1"
	name := strings.TrimPrefix(u.Path, "/")

	executeOn(t, owner, "CREATE DATABASE "+name+" ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
	t.Cleanup(func() { executeOn(t, owner, "DROP DATABASE "+name+" WITH (FORCE)") })

	run(t, u.String(), "migrate", "up").want(0)
	diagnosed(t, run(t, u.String(), "doctor"), 1, "error server server_encoding is LATIN1", "fix: create the database with ENCODING 'UTF8'")
}

// TestDoctorWarnsOfOthers in a schema of the search_path.
func TestDoctorWarnsOfOthers(t *testing.T) {
	t.Parallel()

	owner := migratedOn(t, "postgres")
	executeOn(t, owner, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")

	user, app := restrict(t, owner)
	diagnosed(t, run(t, owner, "doctor"), 0, "ok search_path")

	executeOn(t, owner, "GRANT CREATE ON SCHEMA public TO "+user)
	diagnosed(t, run(t, owner, "doctor"), 0, "warning search_path "+user+" may create objects in schema public",
		"REVOKE CREATE ON SCHEMA public FROM "+user)
	diagnosed(t, run(t, app, "doctor"), 1, "ok search_path") // itself

	executeOn(t, owner, "GRANT CREATE ON SCHEMA public TO PUBLIC")
	diagnosed(t, run(t, app, "doctor"), 1, "warning search_path PUBLIC may create objects in schema public")

	// What a schema's owner may do he may always do.
	path := withParameter(t, owner, "search_path", "theirs,public")
	executeOn(t, owner, "CREATE SCHEMA theirs AUTHORIZATION "+user)
	diagnosed(t, run(t, path, "doctor"), 0, "warning search_path "+user+" owns schema theirs", "ALTER SCHEMA theirs OWNER TO")
	executeOn(t, owner, "REVOKE ALL ON SCHEMA theirs FROM "+user)
	diagnosed(t, run(t, path, "doctor"), 0, "warning search_path "+user+" owns schema theirs")

	executeOn(t, owner, "ALTER SCHEMA theirs OWNER TO CURRENT_USER")
	executeOn(t, owner, "REVOKE CREATE ON SCHEMA public FROM "+user)
	executeOn(t, owner, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	diagnosed(t, run(t, path, "doctor"), 0, "ok search_path")
}

// TestDoctorCountsConnections of a user who may have one.
func TestDoctorCountsConnections(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			owner := migratedOn(t, name)
			app := alone(t, owner)

			for strategy, want := range map[string]struct {
				code  int
				level string
			}{"cas": {0, "warning"}, "insert": {0, "warning"}, "forupdate": {1, "error"}, "advisory": {1, "error"}} {
				var i *invocation

				eventually(t, "the session before has ended", func() bool {
					i = run(t, app, "doctor", "--strategy", strategy)

					return i.code() != exitUnavailable
				})

				diagnosed(t, i, want.code, want.level+" connections the server refuses a second connection")
			}
		})
	}
}

// alone makes a user who may have one connection, and returns the URL with it.
func alone(t *testing.T, owner string) string {
	t.Helper()

	user, app := restrict(t, owner)

	if strings.HasPrefix(owner, "postgres") {
		executeOn(t, owner, "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+user)
		executeOn(t, owner, "ALTER ROLE "+user+" CONNECTION LIMIT 1")
	} else {
		executeOn(t, owner, "GRANT ALL ON * TO "+user)
		executeOn(t, owner, "ALTER USER "+user+" WITH MAX_USER_CONNECTIONS 1")
	}

	return app
}

// TestRunTellsOfConnections waits, and says so.
func TestRunTellsOfConnections(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			owner := migratedOn(t, name)

			i := start(t, alone(t, owner), "run", "--name", "n", "--strategy", "forupdate", "--", "true")

			eventually(t, "run says what it waits for", func() bool { return strings.Contains(i.stderr.String(), "\n") })

			if err := i.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}

			i.wait()
			i.want(exitSignal+2, "waiting for n")
		})
	}
}

// TestDoctorWithoutTheDatabase has it look for a user whom MySQL does not let
// into the database.
func TestDoctorWithoutTheDatabase(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		if name == "postgres" {
			continue
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()

			owner := migratedOn(t, name)
			user, app := restrict(t, owner)
			executeOn(t, owner, "REVOKE CREATE VIEW ON * FROM "+user)

			run(t, app, "run", "--name", "n", "--", "true").want(exitUnavailable, "sqllock doctor")

			i := run(t, app, "doctor", "--json")
			i.want(1)

			for _, statement := range grantsOf(t, i) {
				executeOn(t, owner, statement)
			}

			diagnosed(t, run(t, app, "doctor"), 0, "ok rights")
		})
	}
}

// TestDoctorOnRowLevelSecurity: a policy hides rows, and refuses them, whatever the user
// was granted.
func TestDoctorOnRowLevelSecurity(t *testing.T) {
	t.Parallel()

	owner := migratedOn(t, "postgres")
	user, app := restrict(t, owner)
	executeOn(t, owner, "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+user)
	diagnosed(t, run(t, app, "doctor"), 0, "ok tables")

	executeOn(t, owner, "ALTER TABLE sqllock_locks ENABLE ROW LEVEL SECURITY")
	run(t, app, "run", "--name", "n", "--", "true").want(exitUnavailable)
	diagnosed(t, run(t, app, "doctor"), 1, "error tables 1 tables have row-level security that binds this user", "DISABLE ROW LEVEL SECURITY")

	executeOn(t, owner, "CREATE POLICY everything ON sqllock_locks USING (true) WITH CHECK (true)")
	run(t, app, "run", "--name", "n", "--", "true").want(0)
	diagnosed(t, run(t, app, "doctor"), 0, "ok tables")

	executeOn(t, owner, "CREATE POLICY nothing ON sqllock_locks AS RESTRICTIVE USING (false)")
	diagnosed(t, run(t, app, "doctor"), 1, "error tables 1 tables have row-level security that binds this user")
}

// TestDoctorOnPersistence: a crash empties what is unlogged, which one table has to be, by which a crash is told.
func TestDoctorOnPersistence(t *testing.T) {
	t.Parallel()

	owner := migratedOn(t, "postgres")
	executeOn(t, owner, "ALTER TABLE sqllock_run SET LOGGED")
	executeOn(t, owner, "ALTER TABLE sqllock_queue SET UNLOGGED")
	diagnosed(t, run(t, owner, "doctor"), 0, "warning tables 1 tables are UNLOGGED", "warning tables 1 table that a crash has to empty",
		"ALTER TABLE sqllock_run SET UNLOGGED")
}

// TestDoctorOnRules: a rule has PostgreSQL do something else than what it was asked.
func TestDoctorOnRules(t *testing.T) {
	t.Parallel()

	owner := migratedOn(t, "postgres")
	executeOn(t, owner, "CREATE RULE nothing AS ON UPDATE TO sqllock_locks DO INSTEAD NOTHING")
	diagnosed(t, run(t, owner, "doctor"), 1, "error tables the tables have 1 rules", "DROP RULE")
}

// TestPrivileges runs what deploy/privileges grants: it is enough for who migrates, who locks and who only looks, and not more.
func TestPrivileges(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			admin, err := neturl.Parse(freshDatabase(t, name))
			if err != nil {
				t.Fatal(err)
			}

			family, database := "postgres", "sqllock"
			if name != "postgres" {
				family, database = "mysql", strings.TrimPrefix(admin.Path, "/")
			}

			// As other tests run at the same time.
			others := []string{"sqllock.", database + ".", "'%'", "'%'"}
			urls := map[string]string{}

			for _, who := range []string{"owner", "app", "watcher"} {
				user := who + "_" + strings.ToLower(rand.Text()[:10])
				others = append(others, "sqllock_"+who, user)

				as := *admin
				as.User = neturl.UserPassword(user, "restricted")

				if name == "postgres" {
					query := as.Query()
					query.Set("search_path", "sqllock")
					as.RawQuery = query.Encode()

					executeOn(t, admin.String(), "CREATE ROLE "+user+" LOGIN PASSWORD 'restricted'")
					t.Cleanup(func() {
						executeOn(t, admin.String(), "DROP OWNED BY "+user+" CASCADE")
						executeOn(t, admin.String(), "DROP ROLE "+user)
					})
				} else {
					executeOn(t, admin.String(), "CREATE USER "+user+" IDENTIFIED BY 'restricted'")
					t.Cleanup(func() { executeOn(t, admin.String(), "DROP USER "+user) })
				}

				urls[who] = as.String()
			}

			grants := func(as, file string) {
				text, err := os.ReadFile("../../deploy/privileges/" + family + "-" + file + ".sql")
				if err != nil {
					t.Fatal(err)
				}

				for statement := range strings.SplitSeq(comments.ReplaceAllString(strings.NewReplacer(others...).Replace(string(text)), ""), ";") {
					if strings.TrimSpace(statement) != "" {
						executeOn(t, as, statement)
					}
				}
			}

			grants(admin.String(), "owner")
			run(t, urls["owner"], "migrate", "up").want(0)

			if name == "postgres" {
				grants(urls["owner"], "users")
			} else {
				grants(admin.String(), "users")
			}

			diagnosed(t, run(t, urls["app"], "doctor"), 0, "ok rights", "ok trial")

			for _, strategy := range []string{"cas", "insert", "forupdate", "advisory"} {
				run(t, urls["app"], "run", "--name", "n", "--strategy", strategy, "--", "true").want(0)
			}

			run(t, urls["app"], "run", "--name", "n", "--shared", "--", "true").want(0)
			run(t, urls["app"], "run", "--name", "n", "--tick", "1h", "--", "true").want(0)
			run(t, urls["app"], "reap", "--retention", "1m").want(0)
			run(t, urls["app"], "migrate", "down", "--force").want(exitUnavailable)

			for _, look := range [][]string{{"ls"}, {"recovery"}, {"migrate", "status"}} {
				run(t, urls["watcher"], look...).want(0)
			}

			run(t, urls["watcher"], "show", "n").want(exitNotHeld)
			run(t, urls["watcher"], "run", "--name", "n", "--", "true").want(exitUnavailable)

			// What the owner made works on without him.
			if family == "mysql" {
				owner := others[slices.Index(others, "sqllock_owner")+1]

				executeOn(t, admin.String(), "RENAME USER "+owner+" TO "+owner+"_away")
				run(t, urls["app"], "run", "--name", "n", "--", "true").want(0)
				run(t, urls["watcher"], "ls").want(0)
				diagnosed(t, run(t, urls["app"], "doctor"), 0, "ok trial")
				executeOn(t, admin.String(), "RENAME USER "+owner+"_away TO "+owner)
			}

			run(t, urls["owner"], "migrate", "down", "--force").want(0)
		})
	}
}

// comments are those of a file of statements.
var comments = regexp.MustCompile(`(?m)^--.*$`)

package migrations_test

import (
	"fmt"
	"io/fs"
	"log"

	"github.com/sqllock/sqllock/migrations"
)

// With goose of your own:
//
//	store, err := database.NewStore(goose.DialectPostgres, migrations.TableName)
//	provider, err := goose.NewProvider("", db, files, goose.WithStore(store))
//	_, err = provider.Up(ctx)
func ExampleFor() {
	files, err := migrations.For("postgres")
	if err != nil {
		log.Fatal(err)
	}

	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(names[0], migrations.TableName)
	// Output: 00001_create_locks.sql sqllock_goose_version
}

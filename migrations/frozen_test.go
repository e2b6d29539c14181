package migrations_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"testing"

	"github.com/sqllock/sqllock/migrations"
)

// published are the migrations with their checksums. Whoever has applied one never applies it again: what is to change needs another.
var published = map[string]string{
	"postgres/00001_create_locks.sql":               "7fc7dc6ec66f9f74581c4902beec0c043e5d0cb47f25f3372986542a7632b707",
	"mysql/00001_create_locks.sql":                  "5b1d97168e92174d54bb715a7d8e742336728c33e91cdbadb3dcb57b38176ce8",
	"sqlite/00001_create_locks.sql":                 "abc95f59c8ab103a2e06eb80c88e7a5beadb3cef232b99dc0a5e2112d73eab31",
	"postgres-functions/00001_create_functions.sql": "91be150f6b7c4a470067a3e7870a9550e20ef05c53b90cd5eb389a89fffddfbc",
}

// TestPublishedStay: migrations are only added.
func TestPublishedStay(t *testing.T) {
	t.Parallel()

	left := maps.Clone(published)

	err := fs.WalkDir(migrations.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		text, err := fs.ReadFile(migrations.FS, path)
		if err != nil {
			return err
		}

		sum := sha256.Sum256(text)

		switch want, found := left[path], hex.EncodeToString(sum[:]); {
		case want == "":
			t.Errorf("%s has no checksum: write down %s when it is published", path, found)
		case found != want:
			t.Errorf("%s has changed: leave it, and add another migration", path)
		}

		delete(left, path)

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	for path := range left {
		t.Errorf("%s is gone, want that it stays", path)
	}
}

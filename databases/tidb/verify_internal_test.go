package tidb

import (
	"strings"
	"testing"
)

// TestRecent has what TIDB_VERSION() says in its first line.
func TestRecent(t *testing.T) {
	t.Parallel()

	for said, want := range map[string]string{
		"Release Version: v8.5.3\nEdition: Community":                       "",
		"Release Version: v8.5.0-alpha-12-gabcdef\nEdition: Community":      "",
		"Release Version: v9.0.0-beta.2.pre\nEdition: Community":            "",
		"Release Version: v10.1.0\nEdition: Enterprise":                     "",
		"Release Version: None\nEdition: Community":                         "",
		"Release Version: v8.4.0-this-is-a-placeholder\nEdition: Community": "",
		"Release Version: v8.4.0\nEdition: Community":                       "TiDB 8.4 was not tried",
		"Release Version: v7.5.6\nEdition: Community":                       "use TiDB 8.5 or later",
		"Release Version: v6.1.0-20230101\nEdition: Community":              "TiDB 6.1",
	} {
		if err := recent(said); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("recent(%q) = %v, want %q", said, err, want)
		}
	}
}

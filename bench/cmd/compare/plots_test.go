package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPlotsShowTheTables draws the plots of docs/performance.md again: those
// that are stored show what its tables say, and so do its summary and README.
func TestPlotsShowTheTables(t *testing.T) {
	t.Parallel()

	docs := filepath.Join("..", "..", "..", "docs")
	document := filepath.Join(t.TempDir(), "performance.md")

	text, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(document, text, 0o600); err != nil {
		t.Fatal(err)
	}

	front, err := os.ReadFile(filepath.Join(docs, "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	readme := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(readme, front, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := redraw(settings{document: document, readme: readme}); err != nil {
		t.Fatal(err)
	}

	if again, err := os.ReadFile(readme); err != nil || string(again) != string(front) {
		t.Errorf("README.md has other figures than docs/performance.md (%v): run make plots", err)
	}

	if again, err := os.ReadFile(document); err != nil || string(again) != string(text) {
		t.Errorf("docs/performance.md does not sum up what its sections say of targets (%v): run make plots", err)
	}

	drawn := plots(t, folder(document))
	stored := plots(t, filepath.Join(docs, "performance"))

	if len(drawn) == 0 || len(drawn) != len(stored) {
		t.Errorf("%d plots are drawn, %d are stored", len(drawn), len(stored))
	}

	for name, plot := range drawn {
		if stored[name] != plot {
			t.Errorf("docs/performance/%s does not show the table: run make plots", name)
		}
	}
}

func plots(t *testing.T, folder string) map[string]string {
	t.Helper()

	files, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil {
		t.Fatal(err)
	}

	plots := make(map[string]string)

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		plots[filepath.Base(file)] = string(text)
	}

	return plots
}

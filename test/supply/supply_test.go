// Package supply looks at what sqllock depends on.
package supply_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// ours is how the paths of our own modules begin.
const ours = "github.com/sqllock/sqllock"

// modules are the folders with a go.mod.
func modules(t *testing.T) (folders []string) {
	t.Helper()

	for _, pattern := range []string{"../..", "../../cmd/sqllock", "../../test", "../../bench", "../../bench/torture", "../../adapters/*"} {
		found, err := filepath.Glob(filepath.Join(pattern, "go.mod"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s has no go.mod: %v", pattern, err)
		}

		for _, file := range found {
			folders = append(folders, filepath.Dir(file))
		}
	}

	return folders
}

// licences are those that a program may be linked with, whatever its own is, by a sentence that each of them has: MIT, BSD, Apache 2.0,
// MPL 2.0 and ISC.
var licences = []string{
	"Permission is hereby granted, free of charge, to any person obtaining a copy",
	"Redistribution and use in source and binary forms, with or without modification, are permitted",
	"Apache License Version 2.0, January 2004",
	"Mozilla Public License Version 2.0",
	"Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted",
}

// TestLicences looks at each module that is linked into the command, or into a program that uses the library or an adapter.
func TestLicences(t *testing.T) {
	t.Parallel()

	spaces := regexp.MustCompile(`\s+`)
	seen := map[string]bool{}

	for _, folder := range modules(t) {
		if base := filepath.Base(folder); base == "test" || base == "bench" || base == "torture" {
			continue
		}

		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Dir}}{{end}}", "./...")
		list.Dir, list.Env = folder, append(os.Environ(), "GOWORK=off")

		output, err := list.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v", folder, err)
		}

		for line := range strings.Lines(string(output)) {
			module, files, _ := strings.Cut(strings.TrimSpace(line), " ")
			if module == "" || seen[module] || strings.HasPrefix(module, ours) {
				continue
			}

			seen[module] = true

			found, err := filepath.Glob(filepath.Join(files, "[Ll][Ii][Cc][Ee][Nn][SsCc][Ee]*"))
			if err != nil || len(found) == 0 {
				t.Errorf("%s has no file with its licence: %v", module, err)

				continue
			}

			text, err := os.ReadFile(found[0])
			if err != nil {
				t.Fatal(err)
			}

			plain := spaces.ReplaceAllString(string(text), " ")

			if !slices.ContainsFunc(licences, func(sentence string) bool {
				return strings.Contains(strings.ToLower(plain), strings.ToLower(sentence))
			}) {
				t.Errorf("%s has a licence that is none of ours to link with: %s", module, found[0])
			}
		}
	}

	if len(seen) < 10 {
		t.Errorf("only %d modules were looked at", len(seen))
	}
}

// TestEachHasAReason: CONTRIBUTING.md says why each module is there that a go.mod asks for.
func TestEachHasAReason(t *testing.T) {
	t.Parallel()

	contributing, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}

	_, section, _ := strings.Cut(string(contributing), "## Dependencies\n")
	section, _, _ = strings.Cut(section, "\n## ")

	// A part of each module's path.
	listed := map[string]bool{}
	for _, word := range strings.FieldsFunc(section, func(r rune) bool { return strings.ContainsRune(" ,;|/\n", r) }) {
		listed[word] = true
	}

	for _, folder := range modules(t) {
		file := filepath.Join(folder, "go.mod")

		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		parsed, err := modfile.Parse(file, text, nil)
		if err != nil {
			t.Fatal(err)
		}

		for _, r := range parsed.Require {
			if r.Indirect || strings.HasPrefix(r.Mod.Path, ours) {
				continue
			}

			if parts := strings.Split(r.Mod.Path, "/")[1:]; !slices.ContainsFunc(parts, func(part string) bool { return listed[part] }) {
				t.Errorf("%s asks for %s, which the section on dependencies does not have", file, r.Mod.Path)
			}
		}
	}
}

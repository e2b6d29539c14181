package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/scenarios"
)

// redraw draws all plots of a document from its tables, and sums its targets up.
func redraw(s settings) error {
	d := &document{settings: s}
	if err := d.open(); err != nil {
		return err
	}

	for _, scenario := range scenarios.All() {
		section, found := report.Section(d.text, scenario.Name)
		if !found {
			return fmt.Errorf("%s has no section %s", d.document, scenario.Name)
		}

		if _, err := draw(folder(d.document), scenario, section); err != nil {
			return err
		}
	}

	d.targets()

	return errors.Join(d.save(), d.writeBrief())
}

// folder is that of the plots, beside the document.
func folder(document string) string { return strings.TrimSuffix(document, filepath.Ext(document)) }

// draw draws the columns of a section's table that the scenario names, and
// returns what shows them in Markdown. Plots are drawn from the tables, so that
// they can be drawn again without another run.
func draw(folder string, scenario scenarios.Scenario, section string) (images string, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}

	for i, place := range scenario.Plots {
		column := scenario.Columns[place]

		bars, err := bars(section, column.Title)
		if err != nil {
			return "", fmt.Errorf("%s: %w", scenario.Name, err)
		}

		if len(bars) < 2 {
			continue // nothing to compare
		}

		plot := report.Plot{Title: scenario.Title, Unit: column.Title, Format: column.Format, More: column.More, Bars: bars}

		drawing, err := plot.SVG()
		if err != nil {
			return "", err
		}

		name := scenario.Name
		if i > 0 {
			name = fmt.Sprintf("%s-%d", name, i+1)
		}

		if err := os.WriteFile(filepath.Join(folder, name+".svg"), drawing, 0o644); err != nil {
			return "", err
		}

		images += fmt.Sprintf("![%s: %s](%s/%s.svg)\n\n", scenario.Title, column.Title, filepath.Base(folder), name)
	}

	return images, nil
}

// bars are those contestants of a table that pictures show.
func bars(section, column string) ([]report.Bar, error) {
	figures, err := report.Read(section, column)
	if err != nil {
		return nil, err
	}

	var bars []report.Bar

	for _, figure := range figures {
		contestant, found := contest.Find(figure.Server + "/" + figure.Name)
		if !found {
			continue // of an older revision
		}

		if label, family, drawn := scenarios.Drawn(contestant); drawn {
			bars = append(bars, report.Bar{Server: figure.Server, Label: label, Family: family, Summary: figure.Summary})
		}
	}

	return bars, nil
}

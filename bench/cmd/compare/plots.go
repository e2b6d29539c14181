package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/scenarios"
)

// folder is that of the plots, beside the page.
func folder(page string) string { return strings.TrimSuffix(page, filepath.Ext(page)) }

// draw draws the column that the scenario names, as the section's table has it. So a plot can be drawn again without
// another run.
func draw(folder string, scenario scenarios.Scenario, section string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}

	i := slices.IndexFunc(scenario.Columns, func(c report.Column) bool { return c.Title == scenario.Plot })
	column := scenario.Columns[i]

	bars, err := bars(section, column.Title)
	if err != nil {
		return fmt.Errorf("%s: %w", scenario.Name, err)
	}

	plot := report.Plot{Title: scenario.Title, Unit: column.Title, Format: column.Format, More: column.More, Bars: bars}

	drawing, err := plot.SVG()
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(folder, scenario.Name+".svg"), drawing, 0o644)
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

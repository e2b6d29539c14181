package report

import (
	"fmt"
	"strings"
)

// Replace puts text between the markers of a section of a document, and leaves
// what people wrote around it alone. A document without the markers gets them
// at its end.
func Replace(document, section, text string) (string, error) {
	begin := fmt.Sprintf("<!-- generated: %s -->", section)
	end := fmt.Sprintf("<!-- end of generated: %s -->", section)

	before, rest, found := strings.Cut(document, begin)
	if !found {
		before, rest = strings.TrimRight(document, "\n")+"\n\n", end+"\n"
	}

	_, after, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("section %s has no end: %q", section, end)
	}

	return before + begin + "\n\n" + strings.TrimSpace(text) + "\n\n" + end + after, nil
}

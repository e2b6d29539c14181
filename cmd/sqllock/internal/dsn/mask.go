package dsn

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// hidden stands where something is not shown.
const hidden = "…"

var (
	// secretName is the name of a parameter that has a password or a key, or the end of
	// the name, up to the value: in "host=db password = pw", in "?sslpassword=pw", in
	// "?pass%77ord=pw", and in "?_pragma=key('k')".
	secretName = regexp.MustCompile(`(?i)(?:(?:` + escapable("pass") + `(?:` + escapable("word") + `|` + escapable("wd") + `|` +
		escapable("phrase") + `|` + escapable("code") + `)?|` + escapable("pw") + `(?:` + escapable("d") + `)?|` +
		escapable("secret") + `|_(?:re)?key|apikey)(?:\s|\+|%20)*(?:=|%3d)|_pragma(?:=|%3d)(?:re|hex)?key\()\s*`)
	// secretParameter is that with the value, which is in quotes, or ends with the
	// word: an & may be one of the password.
	secretParameter = regexp.MustCompile(`(` + secretName.String() + `)(?:'(?:[^'\\]|\\(?s:.))*(?:'|\\?$)\S*|\S*)`)
)

// What is before a password that stands behind a user's name, and what is behind it:
// in a URL, and in a DSN of MySQL's driver. Passwords may have any of the characters
// between, so the last @ counts. What begins with // is no password but a URL's host.
var (
	urlUserinfo    = regexp.MustCompile(userinfoPattern(`(://[^\s/@:]*?)`, `\S*`, `@|%40`))
	driverUserinfo = regexp.MustCompile(userinfoPattern(`(\S*?://[^\s/@:]*|[^\s:]*)`, `\S*`, `@(?:tcp|unix)\(`))
	shortUserinfo  = regexp.MustCompile(`([^\s/@:"']+):(?:[^\s/]\S*)?(@[(/])`)
	anyUserinfo    = regexp.MustCompile(`([^\s/@:"']+):(?:/?[^\s/]\S*|/)?(@)`)
	// These are for a text that is nothing else.
	wholeURLUserinfo    = regexp.MustCompile(userinfoPattern(`(?s)^(.*?://[^:]*?)`, `.*`, `@|%40`))
	wholeDriverUserinfo = regexp.MustCompile(userinfoPattern(`(?s)^([^:]*)`, `.*`, `@(?:tcp|unix)?[(/]`))
	// And this is for an argument that is no URL: a URL with a slip in it, or a form
	// that no program reads.
	wholeUserinfo = regexp.MustCompile(userinfoPattern(`(?s)^([^:]*?)`, `.*`, `@|%40`))
)

// urlBegin is that of a text that is a URL, or a flag or variable with one.
var urlBegin = regexp.MustCompile(`^[^:]*://`)

// userinfoPattern matches what is before a password, the password, of such characters, and
// what is behind it. If a parameter's password comes before that, the mark may be one of its
// characters: then it matches all there is, and nothing is behind.
func userinfoPattern(before, characters, behind string) string {
	return before + `(?::|%3[aA])(?:` + characters + secretName.String() + characters + `(?:` + behind + `)` + characters + `|` +
		characters + `(` + behind + `))`
}

// example is how messages show the form of a URL.
var example = regexp.MustCompile(`://user:password@(?:host/db|/db\?socket=path)`)

// kept stands for the text of that number while the rest is looked at.
var kept = regexp.MustCompile("\x00([0-9]+)\x00")

// escapable is a pattern of a word in small letters that may be percent-encoded.
func escapable(word string) string {
	var b strings.Builder

	for _, letter := range []byte(word) {
		fmt.Fprintf(&b, "(?:%c|%%%x|%%%x)", letter, letter, letter-'a'+'A')
	}

	return b.String()
}

// Masked is a message without what stands in the place of a password: behind a
// user's name in a URL or in a DSN of a driver, or as the value of a parameter.
// It looks at places only. Where a password is looked for, a short one shows by
// what is missing.
func Masked(message string) string { return masked(message, false) }

// MaskedArguments is Masked for a message that quotes the command line: behind a
// colon in what looks like user:password@host nothing is shown either. Elsewhere that
// is the name of a lock.
func MaskedArguments(message string) string { return masked(message, true) }

// MaskedArgument is MaskedArguments for one argument, which ends where the text does:
// a password in it may have spaces.
func MaskedArgument(argument string) string { return maskedWhole(argument, true) }

func masked(message string, arguments bool) string {
	var texts []string

	keep := func(text string) string {
		texts = append(texts, text)

		return fmt.Sprintf("\x00%d\x00", len(texts)-1)
	}

	message = strings.ReplaceAll(message, "\x00", "\ufffd")
	message = replaceQuoted(message, func(quoted, text string) string {
		// Who wrote the quotes need not have written escapes as Go does.
		if shown := maskedWhole(text, arguments); shown != text {
			quoted = strconv.Quote(shown)
		}

		return keep(quoted)
	})
	message = maskedWords(example.ReplaceAllStringFunc(message, keep), arguments)

	return kept.ReplaceAllStringFunc(message, func(mark string) string {
		number, _ := strconv.Atoi(strings.Trim(mark, "\x00")) // it was made above

		return texts[number]
	})
}

// replaceQuoted replaces what %q has quoted: one argument, or one name.
func replaceQuoted(message string, replace func(quoted, text string) string) string {
	var b strings.Builder

	for {
		begin := strings.IndexByte(message, '"')
		if begin < 0 {
			return b.String() + message
		}

		b.WriteString(message[:begin])
		message = message[begin:]

		quoted, err := strconv.QuotedPrefix(message)
		if err != nil {
			b.WriteByte('"')

			message = message[1:]

			continue
		}

		text, _ := strconv.Unquote(quoted) // QuotedPrefix has read it
		b.WriteString(replace(quoted, text))

		message = message[len(quoted):]
	}
}

// maskedWhole is a text that may be a URL or a DSN as a whole, so that a password
// goes on behind a space.
func maskedWhole(text string, arguments bool) string {
	whole := wholeDriverUserinfo

	switch {
	case arguments && !urlBegin.MatchString(text):
		whole = wholeUserinfo
	case wholeURLUserinfo.MatchString(text):
		whole = wholeURLUserinfo
	}

	text = whole.ReplaceAllString(text, "${1}:"+hidden+"${2}")

	if name := secretName.FindStringIndex(text); name != nil {
		text = text[:name[1]] + hidden
	}

	return maskedWords(text, arguments)
}

func maskedWords(text string, arguments bool) string {
	text = urlUserinfo.ReplaceAllString(text, "${1}:"+hidden+"${2}")
	text = driverUserinfo.ReplaceAllString(text, "${1}:"+hidden+"${2}")
	text = shortUserinfo.ReplaceAllString(text, "${1}:"+hidden+"${2}")

	if arguments {
		text = anyUserinfo.ReplaceAllString(text, "${1}:"+hidden+"${2}")
	}

	return secretParameter.ReplaceAllString(text, "${1}"+hidden)
}

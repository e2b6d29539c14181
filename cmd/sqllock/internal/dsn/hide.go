package dsn

import (
	"net/url"
	"strings"
)

// HideArguments takes the passwords of URLs out of os.Args, which others see in
// the list of processes, and returns a copy as it was. It must be given os.Args
// or a part of it, and nothing that is constant.
func HideArguments(args []string) []string {
	plain := make([]string, len(args))

	for i, arg := range args {
		plain[i] = strings.Clone(arg)

		if arg == "--" {
			copy(plain[i:], args[i:]) // the rest is the command's

			break
		}

		if from, to, found := secretIn(arg); found {
			overwrite(arg, from, to)
		}
	}

	return plain
}

// secretIn finds the password in an argument that is a URL or a DSN of a driver,
// also behind --dsn=.
func secretIn(arg string) (from, to int, found bool) {
	scheme := strings.Index(arg, "://")

	if scheme < 0 {
		// In user:password@tcp(host)/db or host=h password=pw it could be anywhere.
		begin := 0
		if flag, _, given := strings.Cut(arg, "="); given && strings.HasPrefix(flag, "--") {
			begin = len(flag) + 1
		}

		return begin, len(arg), passwordLike.MatchString(arg)
	}

	begin := scheme + len("://")

	// So it could in parameters, whose names may be escaped.
	if plain, err := url.QueryUnescape(arg); err != nil || strings.Contains(strings.ToLower(plain), "pass") || secretName.MatchString(arg) {
		return begin, len(arg), true
	}

	at := strings.LastIndexByte(arg, '@')
	if at < begin {
		return 0, 0, false
	}

	colon := strings.IndexByte(arg[begin:at], ':')
	if colon < 0 {
		return 0, 0, false
	}

	return begin + colon + 1, at, true
}

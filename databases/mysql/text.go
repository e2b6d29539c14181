package mysql

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/databases"
)

// longest is how long a statement may be that has its values in it. The driver sends a longer one whole, however
// small a packet the DSN allows, and a long value of a prepared one in pieces.
const longest = 256 << 10

// written returns the statement with its values written into it. The driver takes two round trips for a statement
// with values, unless the DSN has interpolateParams=true, and one for a text. The text is the same as
// with that parameter. Values are hexadecimal digits, integers and truths only, so nothing has to be escaped.
// False: one is none of these, or missing, or the text is too long.
func written(stmt databases.Statement, v databases.Values) (text string, ok bool) {
	parts := strings.Split(stmt.SQL, "?")
	if len(parts) != len(stmt.Args)+1 {
		return "", false
	}

	b := []byte(parts[0])

	for i, name := range stmt.Args {
		switch value := v[name].(type) {
		case string:
			b = append(hex.AppendEncode(append(b, '\''), []byte(value)), '\'')
		case int64:
			b = strconv.AppendInt(b, value, 10)
		case bool:
			b = append(b, map[bool]byte{false: '0', true: '1'}[value])
		default:
			return "", false
		}

		b = append(b, parts[i+1]...)
	}

	return string(b), len(b) <= longest
}

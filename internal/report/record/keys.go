package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maps are the keys whose objects have names of all kinds: those that differ in case are two. Everywhere else
// encoding/json takes them for one.
var maps = []string{"counters", "knobs", "libraries", "transports"}

// A scope is an object, or a list, while its keys are read.
type scope struct {
	object bool
	exact  bool            // case tells keys apart
	seen   map[string]bool // reused by later objects at the same depth
	key    string          // the latest
}

// checkKeys refuses valid JSON in which an object has a key twice: readers disagree about which of the two counts.
func checkKeys(data []byte) error {
	var scopes []scope // scopes[:depth] are open
	depth := 0
	open := func(object bool) {
		if depth == len(scopes) {
			scopes = append(scopes, scope{seen: map[string]bool{}})
		}
		s := &scopes[depth]
		clear(s.seen)
		s.object, s.exact = object, depth > 0 && scopes[depth-1].object && slices.Contains(maps, fold(scopes[depth-1].key))
		depth++
	}
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			open(data[i] == '{')
		case '}', ']':
			depth--
		case '"':
			end := stringEnd(data, i)
			if isKey := bytes.HasPrefix(bytes.TrimLeft(data[end:], " \t\r\n"), []byte(":")); isKey {
				if !scopes[depth-1].add(unquote(data[i:end])) {
					return fmt.Errorf("%s: duplicate key %q", place(data, int64(i+1)), unquote(data[i:end]))
				}
			}
			i = end - 1
		}
	}
	return nil
}

// add reports whether the key is new.
func (s *scope) add(key string) bool {
	s.key = key
	if !s.exact {
		key = fold(key)
	}
	if s.seen[key] {
		return false
	}
	s.seen[key] = true
	return true
}

// fold makes keys equal that encoding/json takes for each other.
func fold(key string) string { return strings.ToLower(strings.ToUpper(key)) }

// unquote gives the text of a valid JSON string.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted[1 : len(quoted)-1])
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // valid
	return text
}

package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maps are the keys whose objects have arbitrary keys, which are case-sensitive. Everywhere else encoding/json ignores
// the case of keys.
var maps = []string{"counters", "knobs", "libraries", "transports"}

// scope is an object or a list that is being read.
type scope struct {
	object bool
	exact  bool            // keys are case-sensitive
	seen   map[string]bool // reused by later objects at the same depth
	key    string          // latest key
}

// checkKeys returns an error if an object in valid JSON has a key twice, because readers disagree about which one
// counts.
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

// fold maps keys that encoding/json considers equal to one string.
func fold(key string) string { return strings.ToLower(strings.ToUpper(key)) }

// unquote decodes a valid JSON string.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted[1 : len(quoted)-1])
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // valid
	return text
}

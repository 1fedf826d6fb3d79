package knob

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

type pattern string

func (p pattern) Check() error {
	if !strings.HasPrefix(string(p), "rotate:") {
		return errors.New("use rotate:K")
	}
	return nil
}

type options struct {
	Path    string        `knob:"path,p" values:"auto direct get" group:"how" help:"which way"`
	Open    string        `knob:"open" values:"eager lazy" of:"path=direct" help:"when"`
	Cache   *int          `knob:"cache-size" default:"16" range:"0..1024" of:"path=get" arg:"N" help:"handles kept"`
	Pattern pattern       `knob:"buffers" help:"which buffers"`
	Burst   int           `knob:"burst" default:"64" range:"1..256" of:"op=pingpong" help:"round trips"`
	Copy    string        `knob:"copy" values:"ldst bulk" free:"true" of:"path!=get" help:"how"`
	Sizes   []Size        `knob:"sizes" unset:"all" help:"which sizes"`
	Names   []string      `knob:"names" of:"same!=true" arg:"a,b" help:"some"`
	Wait    time.Duration `knob:"wait" range:"1s.." help:"how long"`
	Rate    float64       `knob:"rate" range:"0..1" help:"how many"`
	Relay   struct {
		Step  Size `knob:"step" unset:"auto" range:"1.."`
		Chunk Size `knob:"chunk" default:"2M" range:"4K..16M" help:"bytes at a time"`
	}
	Same bool `knob:"same" of:"path=direct" help:"one process"`
	Loud bool `knob:"loud" of:"names" help:"say them"`
	Kept int  // not a setting
}

// parsed returns the options after parsing a command line.
func parsed(t *testing.T, args ...string) (options, error) {
	t.Helper()
	var o options
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs, &o)
	return o, fs.Parse(args)
}

func TestFlagsFillTheStruct(t *testing.T) {
	o, err := parsed(t, "-p", "direct", "--open=lazy", "--cache-size", "0", "--buffers", "rotate:3", "--burst", "1",
		"--names", "a, b", "--sizes", "8,4K, 1M,8", "--wait", "2s", "--rate", "0.5", "--chunk", "1M", "--same")
	if err != nil {
		t.Fatal(err)
	}
	if o.Path != "direct" || o.Open != "lazy" || o.Cache == nil || *o.Cache != 0 || o.Pattern != "rotate:3" || o.Burst != 1 ||
		!slices.Equal(o.Sizes, []Size{8, 4096, 1 << 20, 8}) || len(o.Names) != 2 || o.Names[1] != "b" || o.Wait != 2*time.Second || o.Rate != 0.5 || o.Relay.Chunk != 1<<20 || !o.Same {
		t.Errorf("%+v", o)
	}
}

func TestAWordForNoValue(t *testing.T) {
	o, err := parsed(t, "--step", "4K", "--step", "auto")
	if err != nil || o.Relay.Step != 0 {
		t.Errorf("%v, %v", o.Relay.Step, err)
	}
	if _, err := parsed(t, "--step", "0"); err == nil {
		t.Error("0 is taken")
	}
}

func TestFlagsRefuse(t *testing.T) {
	for args, why := range map[string]string{
		"--path=":              "the value is empty: use auto, direct or get",
		"--path= ":             "the value is empty: use auto, direct or get",
		"--wait=":              "the value is empty: want 1s or more",
		"--sizes=":             "the value is empty: give a value or leave the flag out",
		"--path=drect":         "use auto, direct or get",
		"--cache-size=1025":    "want 0 to 1024",
		"--cache-size=-1":      "want 0 to 1024",
		"--cache-size=1.5":     "want a whole number",
		"--burst=0":            "want 1 to 256",
		"--buffers=slices:3":   "use rotate:K",
		"--names=a,,b":         "an entry of the list is empty",
		"--sizes=8,":           "an entry of the list is empty",
		"--sizes=8,9q":         `9q: unknown suffix "q": use K, M, G (1024)`,
		"--sizes=8;9":          "flag: not a number of bytes such as 64, 4K or 1.5M, or all",
		"--step=0":             "want 1 or more, or auto",
		"--wait=1ms":           "want 1s or more",
		"--wait=2":             "want a duration such as 500ms or 10s",
		"--rate=NaN":           "want a number",
		"--rate=+Inf":          "want a number",
		"--rate=1.01":          "want 0 to 1",
		"--chunk=4095":         "want 4K to 16M",
		"--chunk=32M":          "want 4K to 16M",
		"--chunk=4Q":           "unknown suffix",
		"--same=perhaps":       "want true or false",
		"--cache-size=1048576": "want 0 to 1024",
	} {
		if o, err := parsed(t, args); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q in it; %+v", args, err, why, o)
		}
	}
}

func TestCheckRefusesWhatWouldDoNothing(t *testing.T) {
	seven := 7
	for name, c := range map[string]struct {
		o     options
		scope Scope
		want  string
	}{
		"beside another value": {
			options{Path: "get", Open: "lazy"},
			nil,
			"--open lazy: it applies to --path direct, not to get: leave it out",
		},
		"beside a default":       {options{Cache: &seven}, nil, "--cache-size 7: it applies to --path get, not to auto"},
		"a flag without a value": {options{Path: "get", Same: true}, nil, "--same: it applies to"},
		"beside the value it has nothing for": {
			options{Path: "get", Copy: "bulk"}, nil, "--copy bulk: it has no effect with --path get: leave one of them out",
		},
		"beside a flag without a value": {
			options{Path: "direct", Same: true, Names: []string{"a"}}, nil, "--names a: it has no effect with --same: leave one of them out",
		},
		"in no operation": {
			options{Burst: 2},
			Scope{"op": {"latency", "stream"}},
			"--burst 2: it applies to --op pingpong, not to latency,stream",
		},
		"without another": {options{Loud: true}, nil, "--loud: it has no effect without --names: leave it out or add --names"},
		"not by flags":    {options{Path: "drect"}, nil, "--path drect: use auto, direct or get"},
		"own check":       {options{Pattern: "x"}, nil, "--buffers x: use rotate:K"},
	} {
		if err := Check(c.scope, &c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		o     options
		scope Scope
	}{
		"nothing set":         {options{}, Scope{"op": {"stream"}}},
		"where it belongs":    {options{Path: "get", Cache: &seven}, nil},
		"in one of several":   {options{Burst: 2}, Scope{"op": {"latency", "pingpong"}}},
		"of an unknown scope": {options{Burst: 2}, nil},
		"not a setting":       {options{Kept: 7}, nil},
		"with another":        {options{Loud: true, Names: []string{"a"}}, nil},
		"by the last word":    {options{Open: "lazy"}, Scope{"path": {"direct"}}},
	} {
		if err := Check(c.scope, &c.o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFillGivesDefaultsWhereTheyBelong(t *testing.T) {
	o := options{Path: "get", Kept: 3}
	Fill(Scope{"op": {"pingpong"}}, &o)
	want := map[string]string{"path": "get", "cache-size": "16", "burst": "64", "chunk": "2M"}
	if got := Settings(&o); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	o = options{}
	Fill(Scope{"op": {"stream"}}, &o)
	if got, want := Settings(&o), map[string]string{"path": "auto", "chunk": "2M"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWordIsThePlaceAmongTheValues(t *testing.T) {
	if got := Word(&options{Path: "get"}, "path"); got != 2 {
		t.Errorf("get is %d, want 2", got)
	}
	if got := Word(&options{}, "path"); got != 0 {
		t.Errorf("unset: %d, want 0", got)
	}
	if !panics(func() { Word(&options{}, "pth") }) {
		t.Error("no panic for a setting that there is not")
	}
}

func TestTagsThatCannotBeReadPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"condition": func() {
			Fields(new(struct {
				A int `knob:"a" of:"path="`
			}))
		},
		"bound": func() {
			AddFlags(pflag.NewFlagSet("", 0), new(struct {
				A int `knob:"a" range:"x..2"`
			}))
			_ = Check(nil, &struct {
				A int `knob:"a" range:"x..2"`
			}{1})
		},
		"no struct": func() { Fields(3) },
	} {
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestHelpShowsWhatTheTagsSay(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs, &options{})
	usage := fs.FlagUsages()
	for _, want := range []string{
		"-p, --path auto|direct|get ", "(default auto)", "--cache-size N", "(default 16)", "--chunk size", "(default 2M)", "--same ", "--wait duration",
	} {
		if !strings.Contains(usage, want) {
			t.Errorf("no %q in\n%s", want, usage)
		}
	}
	if got := Group(fs.Lookup("path")); got != "how" {
		t.Errorf("group %q", got)
	}
}

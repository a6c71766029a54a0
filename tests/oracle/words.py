"""The vocabulary of the generated selectors: one word on each side of every limit of the grammar. Draws nothing."""

# A label key: an optional DNS subdomain of up to 253 characters and a slash, then a name of up to 63.
KEYS = (
    "a", "b", "c", "app", "tier", "x-y", "A_b.c", "0", "9z", "A", "a--b", "a..b", "a__b", "in", "notin", "In",
    "exists", "example.com/app", "a.b/c", "a/b", "0/0", "a-b.c-d/In", "in/notin", "kubernetes.io/metadata.name",
)
LONG_KEYS = (
    "k" * 63,
    "k" * 61 + ".z",
    "p" * 64 + "/a",   # Only the whole prefix has a limit, not its parts, unlike in the DNS.
    ("p" * 63 + ".") * 3 + "p" * 61 + "/a",
    "p" * 253 + "/" + "k" * 63,
)
BROKEN_KEYS = (
    "/", "a/", "/a", "//", "a//b", "a/b/c", "a/b/", "-a", "a-", "_a", "a_", ".a", "a.", "-", ".", "A.b/c", "aB/c",
    "a_b/c", "a..b/c", ".a/b", "a./b", "-a/b", "a-/b", "a.-b/c", "a-.b/c", "a/-b", "a/b-", "a b", "a:b", "a*", "a;b",
    "a|b", "'a'", '"a"', "$a", "{a}", "a%2Fb", "\\a", "a\\", "é", "aé", "éa", "ключ", "ключ/a", "a/ключ", "ａ",
    "\u212a", "\u017f", "٣", "²", "a\u0301", "\ufeffa", "a\u00a0", "a\u2003b", "a\x0b", "a\x0cb", "a\x1cb", "a\x7f",
    "a\x85b", "a\u2028b", "a\ufffd", "😀", "\U0001d7d8", "ﬁ", "a＝b", "a，b", "a！", "k" * 64, "p" * 254 + "/a",
    ("p" * 63 + ".") * 3 + "p" * 62 + "/a", "a/" + "k" * 64, "é" * 32,
)

VALUES = (
    "b", "c", "web", "db", "x", "y", "z", "B", "Web", "a-b", "a.b", "a_b", "A--.__9", "0", "1", "01", "5", "10", "in",
    "notin", "true", "null", "None", "1e3", "0x5", "1_0", "v1.2.3",
)
LONG_VALUES = ("v" * 63, "v" * 62 + "9", "v" + "." * 61 + "v")
BROKEN_VALUES = (
    "-b", "b-", "_b", "b_", ".b", "b.", "-", "_", ".", "-1", "+1", "a/b", "/", "b:c", "b*", "*", "b;c", "b\\", "\\",
    "'b'", '"b"', "é", "bé", "ёж", "٣", "ｂ", "\u212a", "\u017f", "b\u0301", "\ufeffb", "b\u00a0", "\u2003b", "b\x0b",
    "\x0cb", "b\x1d", "b\x7f", "b\x85c", "b\u2029c", "b\u200b", "😀", "b，c", "v" * 64, "v" * 63 + "-", "v" * 300,
)

# Integers of 64 bits, the first ones beyond, and what is an integer to Python or to the eye alone.
INTEGERS = (
    "0", "1", "2", "5", "6", "9", "10", "11", "99", "100", "00", "007", "0010", "1" + "0" * 18, "9223372036854775806",
    "9223372036854775807", "0" * 44 + "9223372036854775807", "0" * 63,
)
BROKEN_INTEGERS = (
    "9223372036854775808", "18446744073709551615", "18446744073709551616", "1" + "0" * 19, "9" * 63, "9" * 64,
    "0" * 64, "0" * 44 + "9223372036854775808", "-1", "+1", "-0", "--1", "-", "1_0", "1_", "0x10", "0b1", "0o7",
    "1e3", "1.0", "1.", "x", "٣", "１", "²", "1a", "a1", "1-1",
)
# A label is compared as it is, valid or not: these stand in the sets that are matched, never in a text.
NEAR_INTEGERS = (
    "-9223372036854775808", "-9223372036854775809", "-00000000000000000000000005", "+5", "-5", "+9223372036854775807",
    "+9223372036854775808", "+", "-", "+-5", " 5", "5 ", "5\n", "1_0", "0x10", "٣", "１０", "²", "1.0", "1e3", "inf",
    "", "9" * 5000,
)

# Go separates words by these four only, Python's str.split() and str.isspace() know many more.
SPACES = (" ", "  ", "\t", "\n", "\r", "\r\n", " \t\n\r ")
FALSE_SPACES = (
    "\u00a0", "\u2003", "\u3000", "\u1680", "\u202f", "\u2028", "\u2029", "\u200b", "\ufeff", "\x0b", "\x0c", "\x1c",
    "\x1f", "\x85", "\\t",
)

# K, V and N are drawn: a key, a value, an integer. All else stands for itself.
SHAPES = (
    "K", "K", "! K", "! K", "K =", "K = V", "K = V", "K = V", "K ==", "K == V", "K == V", "K !=", "K != V", "K != V",
    "K > N", "K > N", "K < N", "K < N", "K in ( )", "K in ( V )", "K in ( V , V )", "K in ( V , V , V )",
    "K in ( V , V , V , V , V )", "K in ( , )", "K in ( , , )", "K in ( , V )", "K in ( V , )", "K in ( V , , )",
    "K in ( V , , V )", "K in ( , , V )", "K in ( , V , )", "K in ( , V , V )", "K notin ( )", "K notin ( V )",
    "K notin ( V , V )", "K notin ( V , V , V )", "K notin ( , )", "K notin ( , V )", "K notin ( V , )",
    "K notin ( V , , V )",
    "in in ( V )", "in in ( in )", "in notin ( V )", "notin notin ( V )", "notin in ( notin )", "in = V", "notin != V",
)
BROKEN_SHAPES = (
    "! K =", "! K = V", "! K == V", "! K != V", "! K > N", "! K in ( V )", "! K notin ( V )", "! K V", "! ! K", "!",
    "! !", "! =", "! ( K )", "! , K", "K !", "K ! V", "K =! V", "K ! = V", "K = ! V", "K !== V", "K === V", "K = = V",
    "K == = V", "K =!= V", "K ==! V", "K !!= V", "K <> N", "K >= N", "K <= N", "K => N", "K =< N", "K >> N",
    "K > = N", "K > N N", "K >", "K <", "K > ,", "K > ( N )", "K > V", "K < V", "K = ( V )", "K = (", "K = )",
    "K ( V )", "( K )", "( K", "K )", "K (", ")", "(", "( )", "=", "==", "!=", ">", "<", "= V", "!= V", "> N",
    "in ( V )", "notin ( V )", "in", "notin", "in in", "in in in", "in = in", "in in ( in )", "notin notin ( notin )",
    "! in", "! notin", "in notin", "K V", "K V V", "K = V V", "K in", "K notin", "K in V", "K notin V", "K in = V",
    "K in ! V", "K in in ( V )", "K not in ( V )", "K IN ( V )", "K In ( V )", "K notIn ( V )", "K NOTIN ( V )",
    "K exists", "K in (", "K in )", "K notin (", "K notin )", "K in ( V", "K in V )", "K in ( V ,", "K in ( ,",
    "K in ( , ,", "K in ( ( V ) )", "K in ( V ) )", "K in ( V ( )", "K in ( V V )", "K in ( V V , V )",
    "K in ( V = V )", "K in ( = )", "K in ( ! V )", "K in ( V , = )", "K in ( , = )", "K in ( V , ! )",
    "K in ( V ; V )", "K in [ V ]", "K in { V }", "K in ( V ) V", "K in ( V ) in ( V )", "K in ( V ) = V",
    "K in ( > )", "K in ( V , ( ) )", "K ,, K", "K ; K", "K & K", "K && K", "K || K", "K , ! , K",
)

# Texts without any key.
BARE_LABEL_TEXTS = ("", ",", ",,", " , ")
BARE_FIELD_TEXTS = ("", ",", ",,", " ,", "=", "!=", "==", "=,=", "!=,==", "\\,", "\\")

# What any text is spoilt with, and made of when it is noise.
LABEL_NOISE = (
    "=", "=", "!", "!", "(", ")", ",", ",", ">", "<", " ", "\t", "in", "in", "notin", "a", "b", "0", "9", "-", ".",
    "_", "/", "é", "\\", " in (", ")", " notin (", "a", "b", "c",
)
FIELD_NOISE = (
    "=", "=", "!", "!=", "==", ",", ",", "\\", "\\", "\\,", "\\=", "\\\\", " ", "a", "b", ".", "é", "😀", "(", "",
)

FIELDS = (
    "metadata.name", "metadata.namespace", "status.phase", "spec.nodeName", "involvedObject.kind",
    "spec.unschedulable", "a", "b", "c", "a.b",
)
ODD_FIELDS = (
    "", " ", " a", "a ", "a b", "\ta", "a\n", "a!", "!", "!!", "!a", "a!b", "\\a", "a\\", "a\\,b", "\\,", "\\\\",
    "a\\\\", "\\=", "a:b", "(a)", "a in (b)", "a>1", "é", "поле", "\u00a0", "\u2003a", "\uffff", "\U00010000",
    "\ufffd", "\x85", "a" * 300,
)
FIELD_VALUES = (
    "web", "web", "db", "Running", "true", "false", "node01", "x", "y", "1", "",
)
ODD_FIELD_VALUES = (
    " ", " x", "x ", "\tx", "x\n", "x y", "x!", "!", "!x", "x\\,y", "\\,", "\\=", "\\\\", "x\\=y", "x\\\\y",
    "\\\\\\,", "\\\\\\=", "\\,\\=\\\\", "x\\\\", "(x)", "x>1", "'x'", '"x"', "é", "значение", "😀", "\u00a0", "\u2003",
    "\uffff", "\U00010000", "\ufffd", "\x85", "\x7f", "x\u0301", "v" * 300,
)
BROKEN_FIELD_VALUES = (
    "\\", "x\\", "\\\\\\", "\\x", "\\!", "\\ ", "x\\é", "\\😀", "\\\ufffd", "\\n", "=", "=x", "x=", "x=y", "x==y",
    "x!=y", "!=", "x\\\\=y", "\\\\=",
)
BROKEN_TERMS = (
    "a", "metadata.name", " ", "  ", "\t", "\n", "\u00a0", "!", "!!", "\\", "\\\\", "a\\,b", "\\,", "a>1", "a in (b)",
    "!a", "é", "\uffff", "()",
)

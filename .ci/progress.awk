# Condenses the output of `pip install -v`: one line per package and one per ten compiled files.
/^ *(Collecting|Building wheel|Installing collected packages|Successfully installed)/ { show($0) }
match($0, /^ *\[[0-9]+\/[0-9]+\]/) {
    split(substr($0, RSTART, RLENGTH), step, /[^0-9]+/)
    if (step[2] % 10 == 0 || step[2] == step[3]) show("Compiled " step[2] " of " step[3])
}
function show(text) {
    sub(/^ +/, "", text)
    sub(/ \(from .*/, "", text)
    print "  " substr(text, 1, 100)
    fflush()
}

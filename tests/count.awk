# Adds up what `ctest -V` printed: cmocka's tests inside every program, and one for a program that ended badly on its own.
# Prints the failed ones with what they said and the skipped ones with the line before, which is the reason; then the sums.
{
    id = ""
    line = $0
    if (match(line, /^[0-9]+: /)) {
        id = substr(line, 1, RLENGTH - 2)
        line = substr(line, RLENGTH + 1)
    }
}
id != "" && /\[ RUN      \]/ { running[id] = line; sub(/.*\] /, "", running[id]); said[id] = "" }
id != "" && line ~ /^\[  ERROR   \]|^\[   LINE   \]/ { said[id] = said[id] "        " line "\n" }
id != "" && line ~ /^\[       OK \] / { passed++; own[id]++ }
id != "" && line ~ /^\[  FAILED  \] [a-zA-Z]/ && line !~ /test\(s\)/ && !((id, line) in seen) {
    seen[id, line] = 1
    failed++; bad[id]++; own[id]++
    sub(/^\[  FAILED  \] /, "", line)
    fails = fails "    FAILED " line "\n" said[id]
}
id != "" && line ~ /^\[  SKIPPED \] [a-zA-Z]/ && line !~ /test\(s\)/ && !((id, line) in seen) {
    seen[id, line] = 1
    skipped++; own[id]++
    sub(/^\[  SKIPPED \] /, "", line)
    skips = skips "    skipped " line (before[id] ~ /^\[/ ? "" : ": " before[id]) "\n"
}
id != "" { before[id] = line }
# "3/15 Test  #3: unit_base_check .........   Passed    0.02 sec"
id == "" && match(line, /Test +#[0-9]+: /) {
    n = line; sub(/.*Test +#/, "", n); sub(/:.*/, "", n)
    name = line; sub(/.*Test +#[0-9]+: /, "", name); sub(/ .*/, "", name)
    if (line ~ /\*\*\*Skipped/) {
        if (!own[n]) skipped++
        skips = skips "    skipped " name ": " before[n] "\n"
    } else if (line ~ / Passed +[0-9.]+ sec/) {
        if (!own[n]) passed++
    } else if (line ~ /\*\*\*|Not Run/ && !bad[n]) {
        failed++
        why = line; sub(/.*\*\*\*/, "", why); sub(/ +[0-9.]+ sec.*/, "", why)
        fails = fails "    FAILED " name " (" why ")" (running[n] == "" ? "" : " in " running[n]) "\n"
    }
}
END {
    printf "%s%s", skips, fails
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit !(passed + failed + skipped)
}

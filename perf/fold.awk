# fold.awk: what `perf script -F comm,ip,sym,dso` prints to folded stacks, "worker;outermost;...;innermost COUNT" a line,
# sorted. Kernel frames get _[k] behind their name, libraries' _[l].

function place(text,    name, object) {
    sub(/^[ \t]*[0-9a-f]+ /, "", text)
    object = text
    sub(/.*\(/, "", object)
    sub(/\)$/, "", object)
    name = text
    sub(/ \([^()]*\)$/, "", name)
    sub(/\+0x[0-9a-f]+$/, "", name)
    gsub(/[; ]/, "_", name)
    if (name == "[unknown]") {
        sub(/.*\//, "", object)
        name = "[" object "]"
    }
    if (object ~ /^\[/ && object !~ /^\[(vdso|unknown)/) return name "_[k]"
    return object ~ /(^|\/)vmlane$/ ? name : name "_[l]"
}

function flush_stack(    i, stack) {
    if (worker != "" && frames > 0) {
        stack = worker
        for (i = frames; i >= 1; i--) stack = stack ";" frame[i]
        count[stack]++
    }
    worker = ""
    frames = 0
}

/^[^ \t]/ { flush_stack(); worker = $1; next }
NF == 0 { flush_stack(); next }
{ frame[++frames] = place($0) }
END {
    flush_stack()
    for (stack in count) print stack, count[stack] | "LC_ALL=C sort"
}

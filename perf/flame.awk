# flame.awk: folded stacks ("outermost;...;innermost COUNT" a line, sorted by the C locale) to a flame graph, one SVG that
# needs nothing else. Width is samples, height is depth, callers below. A click widens a frame, a click on the bottom row
# shows all again; where scripts do not run each frame still has its name and share as a tooltip.
#
#   awk -v title=TEXT -v subtitle=TEXT -f flame.awk STACKS > FLAME.svg
#
# Colours: blue the kernel (names end in _[k]), orange vmlane, grey libraries (names end in _[l]).

BEGIN {
    FS = "\n"
    width = 1200; margin = 10; row = 17; head = 46; foot = 12; letter = 6.7; thinnest = 0.3
}

# Closes the frames of the last stack above `depth`: their width is known now.
function close_frames(depth,    d) {
    for (d = last_depth; d > depth; d--) {
        frames++
        frame_name[frames] = last[d]
        frame_depth[frames] = d
        frame_begin[frames] = begin[d]
        frame_samples[frames] = total - begin[d]
    }
}

{
    at = match($0, / [0-9]+$/)
    if (!at) next
    samples = substr($0, at + 1) + 0
    depth = split("all;" substr($0, 1, at - 1), stack, ";")
    for (common = 0; common < depth && common < last_depth && stack[common + 1] == last[common + 1]; ) common++
    close_frames(common)
    for (d = common + 1; d <= depth; d++) begin[d] = total
    for (d = 1; d <= depth; d++) last[d] = stack[d]
    last_depth = depth
    total += samples
}

function escaped(text) {
    gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text); gsub(/"/, "\\&quot;", text)
    return text
}

# A colour of the frame's own within its family, the same in every picture.
function colour(name,    i, sum) {
    for (i = 1; i <= length(name); i++) sum = (sum * 7 + index("abcdefghijklmnopqrstuvwxyz_0123456789", substr(name, i, 1))) % 97
    if (name ~ /_\[k\]$/) return sprintf("hsl(%d,45%%,%d%%)", 205 + sum % 12, 68 + sum % 9)
    if (name ~ /_\[l\]$/) return sprintf("hsl(60,6%%,%d%%)", 74 + sum % 9)
    return sprintf("hsl(%d,78%%,%d%%)", 22 + sum % 22, 62 + sum % 8)
}

END {
    close_frames(0)
    scale = total ? (width - 2 * margin) / total : 0
    for (i = 1; i <= frames; i++)
        if (frame_samples[i] * scale >= thinnest && frame_depth[i] > deepest) deepest = frame_depth[i]
    height = head + deepest * row + foot
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"monospace\" font-size=\"11\">\n", \
        width, height, width, height
    printf "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
    printf "<text x=\"%d\" y=\"19\" font-size=\"15\">%s</text>\n", margin, escaped(title)
    printf "<text x=\"%d\" y=\"36\" fill=\"#555\">%s</text>\n<g id=\"frames\">\n", margin, escaped(subtitle)
    for (i = 1; i <= frames; i++) {
        x = margin + frame_begin[i] * scale
        w = frame_samples[i] * scale
        if (w < thinnest) continue
        y = height - foot - frame_depth[i] * row
        name = frame_name[i]
        room = int((w - 4) / letter)
        short = room < 3 ? "" : length(name) <= room ? name : substr(name, 1, room - 2) ".."
        printf "<g data-x=\"%.2f\" data-w=\"%.2f\" data-n=\"%s\"><title>%s: %d samples, %.2f %%</title>", \
            x, w, escaped(name), escaped(name), frame_samples[i], 100 * frame_samples[i] / total
        printf "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" rx=\"1\" fill=\"%s\"/>", x, y, w, row - 1, \
            name == "all" ? "#ddd" : colour(name)
        printf "<text x=\"%.2f\" y=\"%d\">%s</text></g>\n", x + 2, y + 12, escaped(short)
    }
    printf "</g>\n<script><![CDATA[\n"
    printf "const left = %d, wide = %d, letter = %.1f;\n", margin, width - 2 * margin, letter
    print "const frames = [...document.querySelectorAll('#frames > g')];"
    print "function show(chosen) {"
    print "  const from = +chosen.dataset.x, scale = wide / +chosen.dataset.w;"
    print "  for (const frame of frames) {"
    print "    const name = frame.dataset.n, box = frame.children[1], label = frame.children[2];"
    print "    const begin = Math.max(left, left + (+frame.dataset.x - from) * scale);"
    print "    const end = Math.min(left + wide, left + (+frame.dataset.x + +frame.dataset.w - from) * scale);"
    print "    const room = Math.floor((end - begin - 4) / letter);"
    print "    frame.style.display = end - begin > 0.3 ? '' : 'none';"
    print "    box.setAttribute('x', begin);"
    print "    box.setAttribute('width', Math.max(0, end - begin));"
    print "    label.setAttribute('x', begin + 2);"
    print "    label.textContent = room < 3 ? '' : name.length > room ? name.slice(0, room - 2) + '..' : name;"
    print "  }"
    print "}"
    print "for (const frame of frames) frame.addEventListener('click', () => show(frame));"
    printf "]]></script>\n</svg>\n"
}

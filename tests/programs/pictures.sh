#!/bin/sh
# pictures.sh: the report as a browser draws it, 1,280 and 390 pixels wide: nothing is wider than
# the page, no text lies on another, every chart and every curve has its place, and the picture has
# the curves' colours. NEO_BROWSER: Chromium, its headless shell or Chrome.

B=${B:-build}
. tests/harness.sh
W=$PWD/$B/tmp/pictures
rm -rf "$W"
mkdir -p "$W/profile"
BROWSER=$NEO_BROWSER
[ -n "$BROWSER" ] || for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    have $name && BROWSER=$name && break
done

# Runs in the page, which tells what it finds to the page around it: windows of some browsers are
# never as narrow as a phone.
cat >"$W/look.js" <<'END'
window.onload = function () {
  var wide = document.documentElement.clientWidth, found = [], shown = [];
  function rect(e) { return e.getBoundingClientRect(); }
  function all(what, of) { return Array.from((of || document).querySelectorAll(what)); }
  function say(what, e) {
    found.push(what + ": " + e.tagName + " '" + e.textContent.slice(0, 30) + "'");
  }
  if (document.documentElement.scrollWidth > wide)
    found.push("the page is " + document.documentElement.scrollWidth + " wide");
  all("body *").forEach(function (e) {
    var r = rect(e);
    if (e.closest("svg, script") || !e.textContent.trim()) return;
    if (r.right > wide + 0.5 || r.left < -0.5) say("beyond the page", e);
    if (r.width < 1 || r.height < 1) say("nothing to see", e);
    if (!e.children.length && parseFloat(getComputedStyle(e).fontSize) < 11) say("tiny", e);
  });
  all("figure, .facts, .table, header").forEach(function (card) {
    var text = all("h1, h2, p, dt, dd, li, span, th, td", card).map(function (e) {
      var range = document.createRange();
      range.selectNodeContents(e);
      return [e, range.getBoundingClientRect()];
    });
    text.forEach(function (x, i) {
      text.slice(i + 1).forEach(function (y) {
        var a = x[1], b = y[1];
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 &&
            b.top < a.bottom - 2) say("on '" + y[0].textContent.slice(0, 20) + "'", x[0]);
      });
    });
  });
  all("svg").forEach(function (e) {
    var r = rect(e), paths = all(".line", e);
    var figure = e.closest("figure");
    if (r.width < 0.5 * Math.min(wide, 400) || r.height < 30) say("a small chart", figure);
    if (!paths.length) say("a chart without curves", figure);
    paths.forEach(function (p) {
      var q = rect(p);
      if (q.left < r.left - 1 || q.right > r.right + 1 || q.top < r.top - 1 ||
          q.bottom > r.bottom + 1 || !p.getTotalLength() && !p.matches(".dot"))
        say("a curve outside of its chart", figure);
    });
  });
  shown.push(all("svg").length + " charts", all("table").length + " tables");
  parent.postMessage("LOOKED " + wide + " wide: " + shown.join(", ") + "; " +
                     (found.join("; ") || "nothing wrong"), "*");
};
END
# browse WIDTH FILE OPTION...: FILE, in $W, in a frame of that width.
browse() {
    printf '<body style="margin:0"><iframe src="%s" %s"></iframe><script>%s</script></body>' "$2" \
        "style=\"border:0;width:$1px;height:1000px" \
        'onmessage = function (e) { document.body.textContent = e.data; };' >"$W/frame.html"
    width=$1
    shift 2
    timeout -k 5 120 "$BROWSER" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$W/profile" --window-size="$width,1000" --virtual-time-budget=3000 "$@" \
        "file://$W/frame.html" 2>"$W/err"
}
# looks NAME CHARTS TABLES: $W/NAME.html, which has at least so many.
looks() {
    # the script stands where the page ends: the page itself is as it was
    { sed '/<\/body>/,$d' "$W/$1.html" && echo "<script>" && cat "$W/look.js" &&
        echo "</script></body>"; } >"$W/look.html"
    for width in 1280 390; do
        browse $width look.html --dump-dom | sed -n 's/.*\(LOOKED [0-9][^<]*\).*/\1/p' \
            >"$W/said"
        read -r _ seen _ charts _ tables _ <"$W/said"
        if grep -q 'nothing wrong$' "$W/said" && [ "$seen" = $width ] && [ "$charts" -ge "$2" ] &&
            [ "$tables" -ge "$3" ]; then pass
        else fail "$1, $width wide: $(head -c 600 "$W/said"; tail -2 "$W/err")"
        fi
        browse $width "$1.html" --screenshot="$W/$1.$width.png" >/dev/null
        colours "$1.$width" "$W/$1.$width.png" $width
    done
}
# colours NAME PNG WIDTH: the picture is so wide, and has the colours of cards, text and curves.
colours() {
    have python3 || { skip "the colours of $1: no python3"; return; }
    if python3 - "$2" "$3" 2>"$W/err" <<'END'
import struct, sys, zlib
data, at, body = open(sys.argv[1], "rb").read(), 8, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    part = data[at + 8:at + 8 + size]
    if kind == b"IHDR": width, height, depth, color = struct.unpack(">IIBB", part[:10])
    if kind == b"IDAT": body += part
    at += size + 12
each, raw = {2: 3, 6: 4}[color], zlib.decompress(body)
assert width >= int(sys.argv[2]) and depth == 8, (width, depth)
row, counts = bytearray(width * each), {}
for y in range(height):
    kind, line = raw[y * (len(row) + 1)], bytearray(raw[y * (len(row) + 1) + 1:][:len(row)])
    if kind == 2 and not any(line): pass
    else:
        old = row
        for i in range(len(line) if kind else 0):
            a, b = line[i - each] if i >= each else 0, old[i]
            c = old[i - each] if i >= each else 0
            p = abs(b - c), abs(a - c), abs(a + b - 2 * c)
            line[i] = line[i] + (a, b, (a + b) // 2,
                                 a if p[0] <= p[1] and p[0] <= p[2] else b if p[1] <= p[2]
                                 else c)[kind - 1] & 255
        row = line
        seen = {}
        for x in range(0, len(row), each):
            pixel = bytes(row[x:x + 3])
            seen[pixel] = seen.get(pixel, 0) + 1
    for pixel, count in seen.items(): counts[pixel] = counts.get(pixel, 0) + count
wanted = {"card": "ffffff", "page": "f6f7f9", "first curve": "2f6bed", "ink": "15181e"}
for name, pixel in wanted.items():
    assert counts.get(bytes.fromhex(pixel), 0) > 40, (name, counts.get(bytes.fromhex(pixel)))
END
    then pass
    else fail "the picture $1: $(tail -1 "$W/err")"
    fi
}

if [ -z "$BROWSER" ]; then
    skip "the report in a browser: there is no Chromium or Chrome (NEO_BROWSER=...)"
else
    while read -r name charts options; do
        "$B/dlrm" $options --trace "$W/t.json" --report "$W/$name.html" >"$W/out" 2>&1 ||
            fail "dlrm $options: $(tail -1 "$W/out")"
        looks "$name" "$charts" 5
    done <<END
plain 5 --synthetic 20000 --ranks 2
long_names 5 --synthetic 2000 --ranks 4 --nodes 2 --plan twrw --model dcnv2 --optimizer adam
END
fi
finish programs/pictures

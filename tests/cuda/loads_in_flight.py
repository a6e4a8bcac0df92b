"""loads_in_flight.py OBJECT NAME=LEAST[xBYTES]...: loads that a kernel has on their way at once.

A loop that converts or adds what it has loaded before it issues the next load waits for memory once
per load, and nothing in its source shows that: only the order of the machine's instructions does.
Of every kernel in OBJECT whose mangled name has NAME in it, this counts read-only loads (LDG with
.CONSTANT: rows, gradients) of BYTES or more (4) from top to bottom: each is on its way until an
instruction reads one of its registers. Less than LEAST at one time, or no such kernel, is an error.
Printed are, for a kernel of blocks of 8 warps, the most at one time, its registers, the warps that
these leave a processor room for, the bytes that all have on their way, and the latency which those
cover at an H100's 3.35 TB/s over 132 processors (Little's law: bytes on their way = bytes a second
x seconds).
CUOBJDUMP: the disassembler, by default that of the path or of $CUDA/bin."""
import os, re, shutil, subprocess, sys

INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,5})\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s*(.*?)\s*;", re.M)
WORDS = {".64": 2, ".128": 4}
BYTES_A_NS = 3350 / 132


def disassembler():
    at = os.path.join(os.environ.get("CUDA", "/usr/local/cuda"), "bin", "cuobjdump")
    return os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump") or (os.path.exists(at) and at)


def registers(operands):
    """All that operands name; an address is a pair."""
    found = set()
    for number, wide in re.findall(r"\bR(\d+)(\.64)?", operands):
        found.update((int(number), int(number) + 1) if wide else (int(number),))
    return found


def most_loads(text, least_bytes):
    """The most loads of least_bytes on their way at one time."""
    on_way, most = {}, 0
    for at, name, operands in INSTRUCTION.findall(text):
        first, _, rest = operands.partition(",")
        read = registers(operands if name.startswith(("ST", "RED")) else rest)
        for load in [k for k, own in on_way.items() if own & read]:
            del on_way[load]
        words = next((n for mark, n in WORDS.items() if mark in name), 1)
        if name.startswith("LDG") and ".CONSTANT" in name and 4 * words >= least_bytes:
            to = int(re.search(r"R(\d+)", first).group(1))
            on_way[at] = set(range(to, to + words))
            most = max(most, len(on_way))
    return most


def main():
    tool = disassembler()
    if not tool:
        print("there is no cuobjdump")
        return 77
    run = lambda what: subprocess.run([tool, what, sys.argv[1]], capture_output=True, text=True,
                                      check=True).stdout
    parts = re.split(r"\n\s*Function : (\S+)", run("-sass"))
    texts = dict(zip(parts[1::2], parts[2::2]))
    used = dict(re.findall(r"Function (\S+):\s+REG:(\d+)", run("-res-usage")))
    failed = 0
    for rule in sys.argv[2:]:
        name, least, size = re.fullmatch(r"(.*)=(\d+)(?:x(\d+))?", rule).groups("4")
        found = [k for k in texts if name in k]
        failed += not found
        for kernel in found:
            most = most_loads(texts[kernel], int(size))
            warps = min(65536 // (32 * (-(-int(used[kernel]) // 8) * 8)) // 8 * 8, 64)
            there = 32 * warps * most * int(size)
            print(f"{most} loads of {size} bytes in flight, {used[kernel]} registers, {warps} warps"
                  f" a processor, {there >> 10} KB: {there / BYTES_A_NS:.0f} ns: {kernel}" +
                  ("" if most >= int(least) else " TOO FEW"))
            failed += most < int(least)
    return failed and 1


sys.exit(main())

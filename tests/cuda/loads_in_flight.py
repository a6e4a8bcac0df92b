"""loads_in_flight.py OBJECT NAME=LEAST...: loads that a kernel has on their way at once.

A loop that converts or adds what it has loaded before it issues the next load waits for memory once
per load, and nothing in its source shows that: only the order of the machine's instructions does.
Of every kernel in OBJECT whose mangled name has NAME in it, this counts read-only loads (LDG with
.CONSTANT: rows, gradients) from top to bottom: each is on its way until an instruction reads one of
its registers. The most at one time is printed; less than LEAST, or no such kernel, is an error.
CUOBJDUMP: the disassembler, by default that of the path or of $CUDA/bin."""
import os, re, shutil, subprocess, sys

INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,5})\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s*(.*?)\s*;", re.M)
WORDS = {".64": 2, ".128": 4}


def disassembler():
    at = os.path.join(os.environ.get("CUDA", "/usr/local/cuda"), "bin", "cuobjdump")
    return os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump") or (os.path.exists(at) and at)


def registers(operands):
    """All that operands name; an address is a pair."""
    found = set()
    for number, wide in re.findall(r"\bR(\d+)(\.64)?", operands):
        found.update((int(number), int(number) + 1) if wide else (int(number),))
    return found


def most_loads(text):
    on_way, most = {}, 0
    for at, name, operands in INSTRUCTION.findall(text):
        first, _, rest = operands.partition(",")
        read = registers(operands if name.startswith(("ST", "RED")) else rest)
        for load in [k for k, own in on_way.items() if own & read]:
            del on_way[load]
        if name.startswith("LDG") and ".CONSTANT" in name:
            words = next((n for mark, n in WORDS.items() if mark in name), 1)
            to = int(re.search(r"R(\d+)", first).group(1))
            on_way[at] = set(range(to, to + words))
            most = max(most, len(on_way))
    return most


def main():
    tool = disassembler()
    if not tool:
        print("there is no cuobjdump")
        return 77
    sass = subprocess.run([tool, "-sass", sys.argv[1]], capture_output=True, text=True, check=True)
    parts = re.split(r"\n\s*Function : (\S+)", sass.stdout)
    failed = 0
    for rule in sys.argv[2:]:
        name, least = rule.split("=")
        found = {k: most_loads(v) for k, v in zip(parts[1::2], parts[2::2]) if name in k}
        for kernel, most in found.items():
            print(f"{most} loads in flight: {kernel}" + ("" if most >= int(least) else " TOO FEW"))
        failed += not found or min(found.values()) < int(least)
    return failed


sys.exit(main())

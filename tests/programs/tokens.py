"""tokens.py TEXT TOKENS TOKENIZER: writes the characters of a text as tokens, numbered as build/gpt
numbers them, and what they stand for, in files as llm.c's; prints how many there are."""
import struct
import sys

with open(sys.argv[1], "rb") as f:
    text = f.read()
letters = sorted(set(text))
tokens = b"".join(struct.pack("<H", letters.index(c)) for c in text)
tokenizer = b"".join(bytes([1, c]) for c in letters)
for path, magic, count, data in ((sys.argv[2], 20240520, len(text), tokens),
                                 (sys.argv[3], 20240328, len(letters), tokenizer)):
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", magic, 1, count, *[0] * 253) + data)
print(len(letters))

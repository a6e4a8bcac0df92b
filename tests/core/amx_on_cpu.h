/* amx_on_cpu.h: AMX's instructions where there are none: the handler of SIGILL does what the
   processor would, by the pseudocode of Intel's manual, for the seven that neo.h uses. So its
   machine code, the places it reads and the order of its tiles are tested on every x86-64 Linux, on
   a processor with AMX until the system is asked for its tiles. Not for two threads at once. */
#ifndef NEO_AMX_ON_CPU_H
#define NEO_AMX_ON_CPU_H
#if defined(__x86_64__) && defined(__linux__)
#define AMX_ON_CPU 1
#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

typedef struct amx_state {
    unsigned char config[64];
    unsigned char tile[8][1024]; /* rows of 64 bytes */
    int64_t done;                /* instructions */
    int broken;                  /* an operand that the processor would refuse */
} amx_state;
static amx_state amx;

static int amx_rows(int t) { return amx.config[48 + t]; }
static int amx_row_bytes(int t) { return amx.config[16 + 2 * t] | amx.config[17 + 2 * t] << 8; }

static float amx_flush(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (!(u & 0x7F800000u)) u &= 0x80000000u;
    memcpy(&x, &u, sizeof x);
    return x;
}
static float amx_wide(const unsigned char *p) {
    uint32_t u = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
    float x;
    memcpy(&x, &u, sizeof x);
    return amx_flush(x);
}
static float amx_fma(float a, float b,
                     float c) { /* denormals are zeros, before and after rounding */
    const double sum = fma((double)a, (double)b, (double)c);
    return fabs(sum) < 0x1.ffffffp-127 ? copysignf(0.0f, (float)sum) : fmaf(a, b, c);
}
static void amx_tdpbf16ps(int c, int a, int b) {
    const int k_count = amx_row_bytes(a) / 4, n_count = amx_row_bytes(c) / 4;
    if (amx_rows(c) != amx_rows(a) || amx_rows(b) != k_count ||
        amx_row_bytes(b) != amx_row_bytes(c))
        amx.broken = 1;
    if (a == b || a == c || b == c) amx.broken = 1;
    for (int m = 0; m < amx_rows(c); m++) {
        float sums[32] = {0};
        for (int k = 0; k < k_count; k++)
            for (int n = 0; n < n_count; n++)
                for (int i = 0; i < 2; i++)
                    sums[2 * n + i] =
                        amx_fma(amx_wide(amx.tile[a] + 64 * m + 4 * k + 2 * i),
                                amx_wide(amx.tile[b] + 64 * k + 4 * n + 2 * i), sums[2 * n + i]);
        for (int n = 0; n < n_count; n++) {
            float old;
            memcpy(&old, amx.tile[c] + 64 * m + 4 * n, sizeof old);
            old = amx_flush(amx_flush(old) + amx_flush(sums[2 * n] + sums[2 * n + 1]));
            memcpy(amx.tile[c] + 64 * m + 4 * n, &old, sizeof old);
        }
    }
}

/* The registers in the order of their numbers in an instruction. */
static int64_t amx_register(const ucontext_t *u, int number) {
    static const int place[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};
    return (int64_t)u->uc_mcontext.gregs[place[number]];
}
/* The instruction at p: its length, or 0 if it is none of AMX. */
static int amx_run(const unsigned char *p, const ucontext_t *u) {
    if (p[0] != 0xC4 || (p[1] & 0x1F) != 2 || (p[2] & 0x84))
        return 0; /* VEX of three bytes, 0F38, W0, 128 */
    const int pp = p[2] & 3, other = ~p[2] >> 3 & 15, mod = p[4] >> 6, reg = p[4] >> 3 & 7,
              rm = p[4] & 7;
    if (p[3] == 0x49 && pp == 0 && p[4] == 0xC0) { /* tilerelease */
        memset(&amx.config, 0, sizeof amx.config);
        memset(amx.tile, 0, sizeof amx.tile);
        return 5;
    }
    if (p[3] == 0x5C && pp == 2 && mod == 3) {
        amx_tdpbf16ps(reg, rm, other);
        return 5;
    }
    if (p[3] == 0x49 && pp == 3 && mod == 3 && rm == 0) { /* tilezero */
        memset(amx.tile[reg], 0, sizeof amx.tile[reg]);
        return 5;
    }
    if (mod == 3) return 0;
    int length = 5, base = rm | (~p[1] >> 5 & 1) << 3, scale = 0;
    int64_t index = 0, offset = 0;
    if (rm == 4) {
        const unsigned char sib = p[length++];
        base = (sib & 7) | (~p[1] >> 5 & 1) << 3;
        const int number = (sib >> 3 & 7) | (~p[1] >> 6 & 1) << 3;
        scale = sib >> 6;
        index = number == 4 ? 0 : amx_register(u, number);
    }
    if (mod == 0 && (base & 7) == 5) return 0; /* not what neo has */
    if (mod == 1) offset = (signed char)p[length++];
    if (mod == 2) {
        int32_t wide;
        memcpy(&wide, p + length, 4);
        offset = wide, length += 4;
    }
    char *at = (char *)(uintptr_t)(amx_register(u, base) + offset);
    const int64_t stride = (int64_t)((uint64_t)index << scale);
    if (p[3] == 0x49 && pp == 0 && reg == 0) { /* ldtilecfg */
        memcpy(amx.config, at + stride, 64);
        for (int i = 0; i < 8; i++)
            if (amx_rows(i) > 16 || amx_row_bytes(i) > 64) amx.broken = 1;
        for (int i = 2; i < 16; i++)
            if (amx.config[i]) amx.broken = 1;
        for (int i = 32; i < 48; i++)
            if (amx.config[i] || amx.config[i + 16 - 8 * (i >= 40)] > 16) amx.broken = 1;
        if (amx.config[0] != 1) amx.broken = 1;
        memset(amx.tile, 0, sizeof amx.tile);
        return length;
    }
    if (p[3] != 0x4B || rm != 4 || pp == 0) return 0;
    for (int row = 0; row < amx_rows(reg); row++, at += stride) {
        if (pp != 2) { /* tileloadd, tileloaddt1 */
            memset(amx.tile[reg] + 64 * row, 0, 64);
            memcpy(amx.tile[reg] + 64 * row, at, (size_t)amx_row_bytes(reg));
        } else {
            memcpy(at, amx.tile[reg] + 64 * row, (size_t)amx_row_bytes(reg));
        }
    }
    return length;
}
/* A processor with AMX runs ldtilecfg and tilerelease though it refuses what has to do with tiles:
   the configuration is then component 17 of what the signal has saved, by the layout of XSAVE. */
static void amx_take_config(const ucontext_t *u) {
    enum { MAGIC = 464, MAGIC1 = 0x46505853, PRESENT = 512, TILECFG = 17 };
    const unsigned char *saved = (const unsigned char *)u->uc_mcontext.fpregs;
    unsigned bytes, offset, c, d;
    uint32_t head[2]; /* the mark of a whole frame, its size */
    uint64_t present;
    if (!__get_cpuid_count(0xD, TILECFG, &bytes, &offset, &c, &d) || bytes != 64) return;
    memcpy(head, saved + MAGIC, sizeof head);
    memcpy(&present, saved + PRESENT, sizeof present);
    if (head[0] == MAGIC1 && offset + bytes <= head[1] && (present >> TILECFG & 1))
        memcpy(amx.config, saved + offset, sizeof amx.config);
}
static void amx_on_signal(int number, siginfo_t *info, void *context) {
    ucontext_t *u = (ucontext_t *)context;
    (void)info;
    amx_take_config(u);
    const int length = amx_run((const unsigned char *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP], u);
    if (length == 0) {
        signal(number, SIG_DFL); /* the instruction runs again, and stops the program */
        return;
    }
    u->uc_mcontext.gregs[REG_RIP] += length;
    amx.done++;
}
static int amx_on_cpu_begin(struct sigaction *old) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = amx_on_signal;
    action.sa_flags = SA_SIGINFO;
    memset(&amx, 0, sizeof amx);
    return sigaction(SIGILL, &action, old) == 0;
}
#endif
#endif

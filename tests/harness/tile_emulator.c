/* An emulator of the AMX tile instructions, for processors without them.

`install` sets a handler of SIGILL, which decodes the tile instruction at the instruction pointer, executes it on the tiles of
the thread and continues after it. All other signals go to the previous handler. Python accesses the functions without `static`.

The handler may allocate memory and use thread-local variables: a tile instruction never interrupts the C library. */

#define _GNU_SOURCE
#include <immintrin.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, LANES = 16, CONFIGURATION_BYTES = 64 };

/* ---- threads and their tiles */

enum { MAX_INSTRUCTIONS = 16 };

/* The tiles of one thread. Bytes of a tile beyond its rows and columns are always 0. A tile without rows is not configured. */
struct thread {
    uint8_t data[TILES][ROWS][ROW_BYTES];
    uint8_t rows[TILES];
    uint16_t row_bytes[TILES];
    uint8_t palette, start_row;
    uint64_t counts[MAX_INSTRUCTIONS];
    struct thread *next;
};

/* Threads are never removed, so that the counts of a finished thread can be read. */
static struct thread *threads;
static __thread struct thread *own_thread;

static struct thread *current_thread(void) {
    if (!own_thread) {
        void *memory = mmap(NULL, sizeof(struct thread), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            __builtin_trap();
        own_thread = memory;
        own_thread->next = __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
        while (!__atomic_compare_exchange_n(&threads, &own_thread->next, own_thread, false, __ATOMIC_RELEASE,
                                            __ATOMIC_ACQUIRE))
            ;
    }
    return own_thread;
}

/* ---- instructions */

enum outcome { DONE, UNDEFINED_INSTRUCTION, PROTECTION_FAULT };

struct operands {
    int destination, first, second; /* tiles; loads and stores use the destination only */
    uint64_t address, stride, next; /* `next` is the address of the following instruction */
};

static bool is_zero(const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i])
            return false;
    return true;
}

static enum outcome release(struct thread *thread, const struct operands *unused) {
    (void)unused;
    memset(thread, 0, offsetof(struct thread, counts));
    return DONE;
}

/* The layout in memory: palette, start row, 14 bytes 0; bytes per row of 8 tiles, 16 bits each, 16 bytes 0; rows of 8 tiles,
   8 bytes 0. */
static enum outcome configure(struct thread *thread, const struct operands *operands) {
    uint8_t memory[CONFIGURATION_BYTES];
    uint16_t row_bytes[TILES];
    memcpy(memory, (const void *)operands->address, sizeof memory);
    memcpy(row_bytes, memory + 16, sizeof row_bytes);
    const uint8_t *rows = memory + 48;
    if (memory[0] == 0)
        return release(thread, operands);
    if (memory[0] != 1 || !is_zero(memory + 2, 14) || !is_zero(memory + 32, 16) || !is_zero(memory + 56, 8))
        return PROTECTION_FAULT;
    for (int tile = 0; tile < TILES; tile++)
        if (rows[tile] > ROWS || row_bytes[tile] > ROW_BYTES || !rows[tile] != !row_bytes[tile])
            return PROTECTION_FAULT;
    memset(thread->data, 0, sizeof thread->data);
    memcpy(thread->rows, rows, sizeof thread->rows);
    memcpy(thread->row_bytes, row_bytes, sizeof thread->row_bytes);
    thread->palette = memory[0];
    thread->start_row = memory[1];
    return DONE;
}

static enum outcome store_configuration(struct thread *thread, const struct operands *operands) {
    uint8_t memory[CONFIGURATION_BYTES] = {thread->palette, thread->start_row};
    memcpy(memory + 16, thread->row_bytes, sizeof thread->row_bytes);
    memcpy(memory + 48, thread->rows, sizeof thread->rows);
    memcpy((void *)operands->address, memory, sizeof memory);
    return DONE;
}

static enum outcome clear(struct thread *thread, const struct operands *operands) {
    if (!thread->rows[operands->destination])
        return UNDEFINED_INSTRUCTION;
    memset(thread->data[operands->destination], 0, sizeof thread->data[0]);
    return DONE;
}

static enum outcome load(struct thread *thread, const struct operands *operands) {
    int tile = operands->destination, rows = thread->rows[tile];
    if (!rows)
        return UNDEFINED_INSTRUCTION;
    for (int row = thread->start_row; row < rows; row++)
        memcpy(thread->data[tile][row], (const void *)(operands->address + row * operands->stride), thread->row_bytes[tile]);
    thread->start_row = 0;
    return DONE;
}

static enum outcome store(struct thread *thread, const struct operands *operands) {
    int tile = operands->destination, rows = thread->rows[tile];
    if (!rows)
        return UNDEFINED_INSTRUCTION;
    for (int row = thread->start_row; row < rows; row++)
        memcpy((void *)(operands->address + row * operands->stride), thread->data[tile][row], thread->row_bytes[tile]);
    thread->start_row = 0;
    return DONE;
}

/* ---- products */

static bool shapes_match(const struct thread *thread, const struct operands *operands) {
    int c = operands->destination, a = operands->first, b = operands->second;
    const uint8_t *rows = thread->rows;
    const uint16_t *row_bytes = thread->row_bytes;
    if (a == b || a == c || b == c || !rows[a] || !rows[b] || !rows[c])
        return false;
    return row_bytes[a] % 4 == 0 && row_bytes[c] % 4 == 0 && rows[a] == rows[c] && row_bytes[a] / 4 == rows[b] &&
           row_bytes[b] == row_bytes[c];
}

/* Return the mask of the 32-bit lanes of a tile's rows. */
static __mmask16 lanes_of(const struct thread *thread, int tile) {
    return (__mmask16)((1u << thread->row_bytes[tile] / 4) - 1);
}

/* Return the first or second element of each pair of a row, as float32. */
typedef __m512 pair_element(__m512i row, int index);

static inline __m512 bf16_element(__m512i row, int index) {
    return _mm512_castsi512_ps(index ? _mm512_and_si512(row, _mm512_set1_epi32((int)0xffff0000)) : _mm512_slli_epi32(row, 16));
}

static inline __m512 fp16_element(__m512i row, int index) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(index ? _mm512_srli_epi32(row, 16) : row));
}

/* Add products of pairs. The sums of the first and of the second elements are separate, and are added at the end. Denormal
   numbers count as 0 everywhere, except for those of float16; the handler sets the mode. */
static inline __attribute__((always_inline)) enum outcome multiply_pairs(struct thread *thread,
                                                                         const struct operands *operands,
                                                                         pair_element element) {
    if (!shapes_match(thread, operands))
        return UNDEFINED_INSTRUCTION;
    int steps = thread->rows[operands->second];
    __mmask16 lanes = lanes_of(thread, operands->destination);
    _Alignas(64) float a[2][LANES];
    __m512 b[2][ROWS];
    for (int k = 0; k < steps; k++)
        for (int i = 0; i < 2; i++)
            b[i][k] = element(_mm512_load_si512(thread->data[operands->second][k]), i);
    for (int m = 0; m < thread->rows[operands->destination]; m++) {
        for (int i = 0; i < 2; i++)
            _mm512_store_ps(a[i], element(_mm512_load_si512(thread->data[operands->first][m]), i));
        __m512 first = _mm512_setzero_ps(), second = _mm512_setzero_ps();
        for (int k = 0; k < steps; k++) {
            first = _mm512_fmadd_ps(_mm512_set1_ps(a[0][k]), b[0][k], first);
            second = _mm512_fmadd_ps(_mm512_set1_ps(a[1][k]), b[1][k], second);
        }
        void *c = thread->data[operands->destination][m];
        _mm512_mask_store_ps(c, lanes, _mm512_add_ps(_mm512_load_ps(c), _mm512_add_ps(first, second)));
    }
    return DONE;
}

static enum outcome multiply_bf16(struct thread *thread, const struct operands *operands) {
    return multiply_pairs(thread, operands, bf16_element);
}

static enum outcome multiply_fp16(struct thread *thread, const struct operands *operands) {
    return multiply_pairs(thread, operands, fp16_element);
}

/* Return the even or odd bytes of a row as 16-bit integers. */
static inline __m512i widened_bytes(__m512i row, bool is_signed, int index) {
    __m512i high = index ? row : _mm512_slli_epi16(row, 8);
    return is_signed ? _mm512_srai_epi16(high, 8) : _mm512_srli_epi16(high, 8);
}

/* Add products of groups of 4 bytes: those of the even bytes, then those of the odd bytes. Sums wrap. */
static inline __attribute__((always_inline)) enum outcome multiply_bytes(struct thread *thread,
                                                                         const struct operands *operands,
                                                                         bool signed_a, bool signed_b) {
    if (!shapes_match(thread, operands))
        return UNDEFINED_INSTRUCTION;
    int steps = thread->rows[operands->second];
    __mmask16 lanes = lanes_of(thread, operands->destination);
    _Alignas(64) int32_t a[2][LANES]; /* pairs of 16-bit integers */
    __m512i b[2][ROWS];
    for (int k = 0; k < steps; k++)
        for (int i = 0; i < 2; i++)
            b[i][k] = widened_bytes(_mm512_load_si512(thread->data[operands->second][k]), signed_b, i);
    for (int m = 0; m < thread->rows[operands->destination]; m++) {
        for (int i = 0; i < 2; i++)
            _mm512_store_si512(a[i], widened_bytes(_mm512_load_si512(thread->data[operands->first][m]), signed_a, i));
        void *c = thread->data[operands->destination][m];
        __m512i even = _mm512_load_si512(c), odd = _mm512_setzero_si512();
        for (int k = 0; k < steps; k++) {
            even = _mm512_add_epi32(even, _mm512_madd_epi16(_mm512_set1_epi32(a[0][k]), b[0][k]));
            odd = _mm512_add_epi32(odd, _mm512_madd_epi16(_mm512_set1_epi32(a[1][k]), b[1][k]));
        }
        _mm512_mask_store_epi32(c, lanes, _mm512_add_epi32(even, odd));
    }
    return DONE;
}

static enum outcome multiply_ss(struct thread *thread, const struct operands *operands) {
    return multiply_bytes(thread, operands, true, true);
}

static enum outcome multiply_su(struct thread *thread, const struct operands *operands) {
    return multiply_bytes(thread, operands, true, false);
}

static enum outcome multiply_us(struct thread *thread, const struct operands *operands) {
    return multiply_bytes(thread, operands, false, true);
}

static enum outcome multiply_uu(struct thread *thread, const struct operands *operands) {
    return multiply_bytes(thread, operands, false, false);
}

/* ---- decoding */

enum form { MEMORY, MEMORY_OF_ROWS, NO_OPERAND, ONE_TILE, THREE_TILES };
enum prefix { NO_PREFIX, PREFIX_66, PREFIX_F3, PREFIX_F2 };

static const struct instruction {
    const char *name;
    enum prefix prefix;
    uint8_t opcode;
    enum form form;
    enum outcome (*execute)(struct thread *, const struct operands *);
} instructions[] = {
    {"ldtilecfg", NO_PREFIX, 0x49, MEMORY, configure},
    {"sttilecfg", PREFIX_66, 0x49, MEMORY, store_configuration},
    {"tilerelease", NO_PREFIX, 0x49, NO_OPERAND, release},
    {"tilezero", PREFIX_F2, 0x49, ONE_TILE, clear},
    {"tileloadd", PREFIX_F2, 0x4b, MEMORY_OF_ROWS, load},
    {"tileloaddt1", PREFIX_66, 0x4b, MEMORY_OF_ROWS, load},
    {"tilestored", PREFIX_F3, 0x4b, MEMORY_OF_ROWS, store},
    {"tdpbf16ps", PREFIX_F3, 0x5c, THREE_TILES, multiply_bf16},
    {"tdpfp16ps", PREFIX_F2, 0x5c, THREE_TILES, multiply_fp16},
    {"tdpbssd", PREFIX_F2, 0x5e, THREE_TILES, multiply_ss},
    {"tdpbsud", PREFIX_F3, 0x5e, THREE_TILES, multiply_su},
    {"tdpbusd", PREFIX_66, 0x5e, THREE_TILES, multiply_us},
    {"tdpbuud", NO_PREFIX, 0x5e, THREE_TILES, multiply_uu},
};

enum { INSTRUCTIONS = sizeof instructions / sizeof *instructions };
_Static_assert((int)INSTRUCTIONS <= (int)MAX_INSTRUCTIONS, "threads count fewer instructions");

/* The fields of the VEX prefix and of the ModRM byte; register numbers include the bits of the prefix. */
struct encoding {
    bool wide, is_256;
    enum prefix prefix;
    int vvvv, opcode;
    int r, x, b; /* the upper bit of `reg`, of the index and of `rm` or the base, shifted by 3 */
    int mod, reg, rm;
};

/* Tile instructions are in opcode map 2, in which all have a ModRM byte. No byte beyond the instruction is read. */
static const uint8_t *read_encoding(const uint8_t *code, struct encoding *encoding) {
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2)
        return NULL;
    uint8_t second = code[1], third = code[2];
    code += 3;
    encoding->r = second & 0x80 ? 0 : 8;
    encoding->x = second & 0x40 ? 0 : 8;
    encoding->b = second & 0x20 ? 0 : 8;
    encoding->wide = third & 0x80;
    encoding->vvvv = ~third >> 3 & 15;
    encoding->is_256 = third & 4;
    encoding->prefix = third & 3;
    encoding->opcode = *code++;
    uint8_t modrm = *code++;
    encoding->mod = modrm >> 6;
    encoding->reg = (modrm >> 3 & 7) + encoding->r;
    encoding->rm = (modrm & 7) + encoding->b;
    return code;
}

static bool has_form(const struct encoding *encoding, enum form form) {
    bool is_memory = encoding->mod != 3;
    if (form != THREE_TILES && encoding->vvvv)
        return false;
    switch (form) {
    case MEMORY:
        return is_memory && encoding->reg == 0;
    case MEMORY_OF_ROWS: /* 4 stands for base and index */
        return is_memory && encoding->reg < TILES && (encoding->rm & 7) == 4;
    case NO_OPERAND:
        return !is_memory && encoding->reg == 0 && encoding->rm == 0;
    case ONE_TILE:
        return !is_memory && encoding->reg < TILES && encoding->rm == 0;
    case THREE_TILES:
        return !is_memory && encoding->reg < TILES && encoding->rm < TILES && encoding->vvvv < TILES;
    }
    return false;
}

static uint64_t register_value(const greg_t *registers, int number) {
    static const int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                 REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)registers[places[number]];
}

static int64_t read_displacement(const uint8_t **code, int bytes) {
    int8_t narrow;
    int32_t value = 0;
    if (bytes == 1) {
        memcpy(&narrow, *code, 1);
        value = narrow;
    } else if (bytes == 4)
        memcpy(&value, *code, 4);
    *code += bytes;
    return value;
}

/* Compute the address and the stride of a memory operand. */
static const uint8_t *read_address(const uint8_t *code, const struct encoding *encoding, const greg_t *registers,
                                   struct operands *operands, bool has_stride) {
    int displacement_bytes = encoding->mod == 0 ? 0 : encoding->mod == 1 ? 1 : 4;
    bool has_base = true, is_relative = false;
    int base = encoding->rm;
    uint64_t index_value = 0;
    if ((encoding->rm & 7) == 4) {
        uint8_t sib = *code++;
        base = (sib & 7) + encoding->b;
        int index = (sib >> 3 & 7) + encoding->x;
        if (index != 4)
            index_value = register_value(registers, index) << (sib >> 6);
        has_base = encoding->mod != 0 || (base & 7) != 5;
    } else if (encoding->mod == 0 && (encoding->rm & 7) == 5) {
        has_base = false;
        is_relative = true;
    }
    if (!has_base)
        displacement_bytes = 4;
    operands->address = (uint64_t)read_displacement(&code, displacement_bytes);
    if (has_base)
        operands->address += register_value(registers, base);
    if (is_relative)
        operands->address += (uint64_t)code;
    if (has_stride)
        operands->stride = index_value;
    else
        operands->address += index_value;
    return code;
}

/* Return the tile instruction at the instruction pointer and its operands; NULL for any other instruction. */
static const struct instruction *decode(const greg_t *registers, struct operands *operands) {
    struct encoding encoding;
    const uint8_t *code = read_encoding((const uint8_t *)registers[REG_RIP], &encoding);
    if (!code || encoding.wide || encoding.is_256)
        return NULL;
    for (const struct instruction *instruction = instructions; instruction < instructions + INSTRUCTIONS; instruction++) {
        if (encoding.opcode != instruction->opcode || encoding.prefix != instruction->prefix ||
            !has_form(&encoding, instruction->form))
            continue;
        if (encoding.mod != 3)
            code = read_address(code, &encoding, registers, operands, instruction->form == MEMORY_OF_ROWS);
        operands->destination = encoding.reg;
        operands->first = encoding.rm;
        operands->second = encoding.vvvv;
        operands->next = (uint64_t)code;
        return instruction;
    }
    return NULL;
}

/* ---- the handler */

static struct sigaction previous;

/* Restore the previous action, which receives the signal when the handler returns: the processor raises it again. A handler that
   passes the signal on to this one, as faulthandler does if it was enabled later, reaches the default action. */
static void pass_on(int signal, const siginfo_t *info) {
    struct sigaction action = previous;
    memset(&previous, 0, sizeof previous);
    sigaction(signal, &action, NULL);
    if (info->si_code <= 0)
        raise(signal);
}

/* Execute the instruction that raised SIGILL, and the tile instructions that follow it directly: a signal takes ten times as long
   as a product. */
static void handle(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    struct operands operands;
    const struct instruction *instruction = info->si_code > 0 ? decode(registers, &operands) : NULL;
    if (!instruction)
        pass_on(signal, info);
    /* The system restores the mode of the program when the handler returns. */
    _mm_setcsr(_MM_MASK_MASK | _MM_ROUND_NEAREST | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    for (; instruction; instruction = decode(registers, &operands)) {
        switch (instruction->execute(current_thread(), &operands)) {
        case DONE:
            own_thread->counts[instruction - instructions]++;
            registers[REG_RIP] = (greg_t)operands.next;
            break;
        case PROTECTION_FAULT: /* raised by an address that is not canonical */
            *(volatile char *)(UINT64_C(1) << 63);
            return;
        case UNDEFINED_INSTRUCTION:
            pass_on(signal, info);
            return;
        }
    }
}

/* Set the handler unless it is set; return 0, or -1 on failure. */
int install(void) {
    struct sigaction current, action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGILL, NULL, &current))
        return -1;
    if (current.sa_flags & SA_SIGINFO && current.sa_sigaction == handle)
        return 0;
    previous = current;
    return sigaction(SIGILL, &action, NULL);
}

/* ---- counts */

int instruction_count(void) { return INSTRUCTIONS; }

const char *instruction_name(int instruction) { return instructions[instruction].name; }

/* Copy the counts of thread number `thread`, the newest first; return whether the thread exists. */
bool read_counts(int thread, uint64_t *counts) {
    struct thread *current = __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
    while (current && thread--)
        current = current->next;
    if (current)
        memcpy(counts, current->counts, INSTRUCTIONS * sizeof *counts);
    return current;
}

void reset_counts(void) {
    for (struct thread *thread = __atomic_load_n(&threads, __ATOMIC_ACQUIRE); thread; thread = thread->next)
        memset(thread->counts, 0, sizeof thread->counts);
}

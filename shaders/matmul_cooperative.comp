// SPDX-License-Identifier: MIT
//
// out (M,N) = A B on matrix units. A workgroup computes TILE_M x TILE_N elements, a subgroup SUB_M
// x SUB_N of them, in fragments of the size that the device's units take. Slices of A and B are
// double-buffered in shared memory: before one is multiplied, the next is written from registers,
// and the one after that is read into registers. A barrier separates these reads from their use, so
// no compiler delays them until then. Elements outside the tensors count as zero, so sizes are
// arbitrary.
//   TYPE       TYPE_F16 or TYPE_BF16, of the units' operands
//   SPLIT=0    a and b hold 16-bit elements. SPLIT=1..3: they hold fp32 and are multiplied as sums of
//              SPLIT 16-bit parts, without terms below the last part's rounding
//   OUT16=1    out holds 16-bit elements, else fp32
//   QUANTIZED  b is in 8 bits, or with QUANTIZED_NF4 in 4 (quantized.glsl); rows of b are whole chunks
//              of eight. It is unpacked to 16 bits on its way from registers to shared memory
#version 450
#pragma use_vulkan_memory_model
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require

#if defined(QUANTIZED) && TYPE == 1
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif

#include "cooperative.glsl"

layout(local_size_x_id = 0) in; // TILE_M / SUB_M * TILE_N / SUB_N subgroups
layout(constant_id = 0) const uint LANES = 64;
layout(constant_id = 1) const uint TILE_M = 64;
layout(constant_id = 2) const uint TILE_N = 64;
layout(constant_id = 3) const uint SUB_M = 32;
layout(constant_id = 4) const uint SUB_N = 32;
layout(constant_id = 5) const uint FRAGMENT_M = 16;
layout(constant_id = 6) const uint FRAGMENT_N = 16;
layout(constant_id = 7) const uint FRAGMENT_K = 16;
layout(constant_id = 8) const uint DEPTH = 32; // of a slice, in k
layout(constant_id = 9) const bool TRANS_A = false;
layout(constant_id = 10) const bool TRANS_B = false;
layout(constant_id = 11) const uint READS_A = 0; // see ELEMENTS
layout(constant_id = 12) const uint READS_B = 0;
layout(constant_id = 13) const bool OUT_WIDE = false; // rows of out and the like are whole quads

layout(constant_id = 14) const bool ACTIVATES = true; // see matmul_epilogue.glsl
// How an operand is read: any layout; rows in memory are whole 16 bytes; these, and k is whole
// slices.
const uint ELEMENTS = 0, CHUNKS = 1, SLICES = 2;
const bool WIDE_A = READS_A >= CHUNKS, WIDE_B = READS_B >= CHUNKS;
const bool whole_a = READS_A == SLICES, whole_b = READS_B == SLICES;
const bool lines_are_k_a = TRANS_A, lines_are_k_b = !TRANS_B;
// For subgroups with few registers: the next slices are read after the current ones are multiplied.
layout(constant_id = 15) const bool LEAN = false;
// In shared memory slices lie along k, whatever their direction in memory. Many compilers read a
// fragment across k by single elements; others pay more for the change of direction.
layout(constant_id = 16) const bool TURN = false;
const uint OPERAND_TYPE = SPLIT > 0 ? 0 : TYPE, RESULT_TYPE = OUT16 != 0 ? TYPE : 0;

#define SHORTS
#define FINISHED 1
#include "matmul.glsl"
#include "matmul_epilogue.glsl"

#ifdef QUANTIZED
#define CHUNKS_OF TYPE
#include "quantized.glsl"
#endif

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Chunks { uvec4 at[]; };

// Shared memory is counted in chunks of 16 bytes: eight elements. A slice is a row of chunks for each
// of its lines (rows or columns of the tile, as they lie in memory), and one more, which shifts
// lines to other banks.
#if SPLIT
#define PARTS SPLIT
#define CHUNK_REGISTERS 2
#define REGISTER vec4
#else
#define PARTS 1
#define CHUNK_REGISTERS 1
#define REGISTER uvec4
#endif
const uint WIDTH_A = (TRANS_A ? TILE_M : DEPTH) / 8, LINES_A = TRANS_A ? DEPTH : TILE_M;
const uint WIDTH_B = (TRANS_B ? DEPTH : TILE_N) / 8, LINES_B = TRANS_B ? TILE_N : DEPTH;
const uint CHUNKS_A = WIDTH_A * LINES_A, CHUNKS_B = WIDTH_B * LINES_B;
// Slices that change direction are read by pairs of lines.
const bool TURN_A = TURN && TRANS_A, TURN_B = TURN && !TRANS_B;
const bool ALONG_A = TURN_A || !TRANS_A, ALONG_B = TURN_B || TRANS_B; // k, in shared memory
const uint STEP_A = TURN_A ? 2 : 1, STEP_B = TURN_B ? 2 : 1;
const uint LOADS_A = STEP_A * ((CHUNKS_A + STEP_A * LANES - 1) / (STEP_A * LANES));
const uint LOADS_B = STEP_B * ((CHUNKS_B + STEP_B * LANES - 1) / (STEP_B * LANES));
const uint PITCH_A = (ALONG_A ? DEPTH : TILE_M) / 8 + 1;
const uint PITCH_B = (ALONG_B ? DEPTH : TILE_N) / 8 + 1;
const uint SLICE_A = PITCH_A * (ALONG_A ? TILE_M : DEPTH);
const uint SLICE_B = PITCH_B * (ALONG_B ? TILE_N : DEPTH);
const uint STAGE = PARTS * (SLICE_A + SLICE_B);

const uint ACROSS_M = SUB_M / FRAGMENT_M, ACROSS_N = SUB_N / FRAGMENT_N; // fragments
const uint SUBGROUPS = TILE_M / SUB_M * (TILE_N / SUB_N), SUBGROUP_LANES = LANES / SUBGROUPS;
// At the end a subgroup's sums pass through its own patch: a row of fragments, in fp32.
const uint PATCH_PITCH = SUB_N / 4 + 1, PATCH = FRAGMENT_M * PATCH_PITCH;

shared uvec4 stage[2 * STAGE > SUBGROUPS * PATCH ? 2 * STAGE : SUBGROUPS * PATCH];

// The address k rows (of `pitch` elements) after `base`: uniform, so that it costs no instructions
// per invocation. Slices that begin past the end are read from it, and not used.
uvec2 advance(uvec2 base, uint k, uint pitch)
{
    const uint shift = SPLIT > 0 ? 2 : 1; // of elements to bytes
    uint high, low, carry;
    umulExtended(k, pitch, high, low);
    const uint sum = uaddCarry(base.x, low << shift, carry);
    return uvec2(sum, base.y + (high << shift | low >> 32 - shift) + carry);
}

#if SPLIT
vec4 read_quad(uvec2 base, uint start, uint pitch, bool wide, uint line, uint lines, uint column,
               uint columns)
{
    const uint row = start + min(line, lines - 1) * pitch;
    vec4 x;
    if (wide)
        x = Quads(base).at[(row + min(column, columns - 4)) / 4];
    else
        [[unroll]] for (uint i = 0; i < 4; i++)
            x[i] = Floats(base).at[row + min(column + i, columns - 1)];
    const bvec4 inside = lessThan(uvec4(column) + uvec4(0, 1, 2, 3), uvec4(columns));
    return line < lines ? mix(vec4(0), x, inside) : vec4(0);
}
#else
uint read_element(uvec2 base, uint row, uint column, uint columns)
{
    const uint x = uint(Shorts(base).at[row + min(column, columns - 1)]);
    return column < columns ? x : 0;
}

uvec4 read_chunk(uvec2 base, uint start, uint pitch, bool wide, uint line, uint lines, uint column,
                 uint columns)
{
    const uint row = start + min(line, lines - 1) * pitch;
    uvec4 x;
    if (wide) {
        x = Chunks(base).at[(row + min(column, columns - 8)) / 8];
        x = column < columns ? x : uvec4(0);
    } else
        [[unroll]] for (uint i = 0; i < 4; i++)
            x[i] = read_element(base, row, column + 2 * i, columns) |
                   read_element(base, row, column + 2 * i + 1, columns) << 16;
    return line < lines ? x : uvec4(0);
}
#endif

#define STEP_OF_a A_STEP
#define STEP_OF_b B_STEP(TRANS_B)
// Reads a lane's chunks of the slice whose first line and column are given; `step` lines at a time.
#define READ_SLICE(t, wide, loads, chunks, step, width, line0, lines, column0, columns)            \
    if (whole_##t) {                                                                               \
        const uint k = min(lines_are_k_##t ? line0 : column0, K - DEPTH);                          \
        const uvec2 from = advance(pc.t, k, lines_are_k_##t ? pc.t##_row : 1);                     \
        const uint start = gl_WorkGroupID.z * STEP_OF_##t;                                         \
        [[unroll]] for (uint i = 0; i < loads; i++) {                                              \
            const uint chunk = min(i / step * LANES + id, chunks / step - 1);                      \
            const uint line = chunk / width * step + i % step, column = chunk % width * 8;         \
            const uint at = start + (lines_are_k_##t                                               \
                                         ? line * pc.t##_row + min(column0 + column, columns - 8)  \
                                         : min(line0 + line, lines - 1) * pc.t##_row + column);    \
            READ_WHOLE_REGISTERS(t)                                                                \
        }                                                                                          \
    } else {                                                                                       \
        [[unroll]] for (uint i = 0; i < loads; i++) {                                              \
            const uint chunk = min(i / step * LANES + id, chunks / step - 1);                      \
            const uint line = line0 + chunk / width * step + i % step;                             \
            const uint column = column0 + chunk % width * 8;                                       \
            READ_REGISTERS(t, wide, line, lines, column, columns)                                  \
        }                                                                                          \
    }
#define READ(reader, t, wide, line, lines, column, columns)                                        \
    reader(pc.t, gl_WorkGroupID.z * STEP_OF_##t, pc.t##_row, wide, line, lines, column, columns)
#if SPLIT
#define READ_REGISTERS(t, wide, line, lines, column, columns)                                      \
    next_##t[2 * i] = READ(read_quad, t, wide, line, lines, column, columns);                      \
    next_##t[2 * i + 1] = READ(read_quad, t, wide, line, lines, column + 4, columns);
#define READ_WHOLE_REGISTERS(t)                                                                    \
    next_##t[2 * i] = Quads(from).at[at / 4];                                                      \
    next_##t[2 * i + 1] = Quads(from).at[at / 4 + 1];
#else
#define READ_WHOLE_REGISTERS(t) next_##t[i] = Chunks(from).at[at / 8];
#define READ_REGISTERS(t, wide, line, lines, column, columns)                                      \
    next_##t[i] = READ(read_chunk, t, wide, line, lines, column, columns);
#endif

#ifdef QUANTIZED
// Past the ends it reads other elements: a is zero past K, and columns past N are not stored.
#define READ_PACKED(line0, lines, column0, columns)                                                \
    [[unroll]] for (uint i = 0; i < LOADS_B; i++) {                                                \
        const uint chunk = min(i / STEP_B * LANES + id, CHUNKS_B / STEP_B - 1);                    \
        const uint line = (line0) + chunk / WIDTH_B * STEP_B + i % STEP_B;                         \
        const uint column = (column0) + chunk % WIDTH_B * 8;                                       \
        const uint row = min(line, (lines) - 1);                                                   \
        const uint at = gl_WorkGroupID.z * B_STEP(TRANS_B) + row * B_ROW(TRANS_B) +                \
                        min(column, (columns) - 8);                                                \
        packed_b[i] = packed_chunk(                                                                \
            at / 8, blocks_before(TRANS_B ? row : row + gl_WorkGroupID.z * pc.part));              \
    }
#endif

#if SPLIT
// Takes the next part of four elements and subtracts it from them. Infinities and NaNs have one
// part.
uvec2 take_part(inout vec4 x)
{
    const uvec2 words = uvec2(pack2(x.xy), pack2(x.zw));
    const vec4 part = vec4(unpack2(words.x), unpack2(words.y));
    precise vec4 rest = x - part;
    const uvec4 exponent = floatBitsToUint(part) & 0x7f800000u;
    x = mix(rest, vec4(0), equal(exponent, uvec4(0x7f800000u)));
    return words;
}
#define WRITE_CHUNK(registers, at, slice)                                                          \
    vec4 low = registers[2 * i], high = registers[2 * i + 1];                                      \
    [[unroll]] for (uint part = 0; part < PARTS; part++)                                           \
        stage[at + part * slice] = uvec4(take_part(low), take_part(high));
#define WRITE_LINES(registers, at, pitch, word, slice)                                             \
    vec4 low0 = registers[2 * i], high0 = registers[2 * i + 1];                                    \
    vec4 low1 = registers[2 * i + 2], high1 = registers[2 * i + 3];                                \
    [[unroll]] for (uint part = 0; part < PARTS; part++)                                           \
        write_lines(at + part * slice, pitch, word, uvec4(take_part(low0), take_part(high0)),      \
                    uvec4(take_part(low1), take_part(high1)));
#else
#define WRITE_CHUNK(registers, at, slice) stage[at] = registers[i];
#define WRITE_LINES(registers, at, pitch, word, slice)                                             \
    write_lines(at, pitch, word, registers[i], registers[i + 1]);
#endif

// Packs two neighbours in k of eight lines into a word for each line.
void write_lines(uint at, uint pitch, uint word, uvec4 first, uvec4 second)
{
    [[unroll]] for (uint i = 0; i < 4; i++) {
        stage[at + 2 * i * pitch][word] = (first[i] & 0xffff) | second[i] << 16;
        stage[at + (2 * i + 1) * pitch][word] = first[i] >> 16 | (second[i] & 0xffff0000u);
    }
}

#define WRITE_SLICE(registers, to, loads, chunks, step, width, pitch, slice)                       \
    [[unroll]] for (uint i = 0; i < loads; i += step) {                                            \
        const uint chunk = i / step * LANES + id;                                                  \
        if (chunks % (step * LANES) == 0 || chunk < chunks / step) {                               \
            const uint line = chunk / width * step, column = chunk % width;                        \
            if (step == 1) {                                                                       \
                WRITE_CHUNK(registers, (to) + line * pitch + column, slice)                        \
            } else {                                                                               \
                WRITE_LINES(registers, (to) + 8 * column * pitch + line / 8, pitch, line % 8 / 2,  \
                            slice)                                                                 \
            }                                                                                      \
        }                                                                                          \
    }

void main()
{
    const uint id = gl_LocalInvocationID.x, K = part_of_k();
    const uint tile = gl_WorkGroupID.y * pc.groups_x + gl_WorkGroupID.x;
    if (tile >= pc.tiles_m * pc.tiles_n)
        return; // the whole workgroup
    // Bands of eight rows of tiles, column by column: neighbours in time share operands.
    const uint band = tile / (8 * pc.tiles_n), in_band = tile % (8 * pc.tiles_n);
    const uint band_rows = min(8, pc.tiles_m - 8 * band);
    const uint row0 = (8 * band + in_band % band_rows) * TILE_M;
    const uint column0 = in_band / band_rows * TILE_N;
    const uint sub_m = gl_SubgroupID / (TILE_N / SUB_N) * SUB_M;
    const uint sub_n = gl_SubgroupID % (TILE_N / SUB_N) * SUB_N;

    REGISTER next_a[LOADS_A * CHUNK_REGISTERS], next_b[LOADS_B * CHUNK_REGISTERS];
#ifdef QUANTIZED
    uvec3 packed_b[LOADS_B];
    fill_tables(id, LANES);
    const float offset = packed_offset();
#endif
    MATRIX_SUM sum[ACROSS_M][ACROSS_N];
    [[unroll]] for (uint r = 0; r < ACROSS_M; r++)
        [[unroll]] for (uint s = 0; s < ACROSS_N; s++)
            sum[r][s] = matrix_splat(0.0);
#if TYPE == TYPE_F16
    // Some compilers leave sums in the registers where they began, and copy them to those of the
    // units at every use. So sums begin as results of the units.
    if (!LEAN)
        [[unroll]] for (uint r = 0; r < ACROSS_M; r++)
            [[unroll]] for (uint s = 0; s < ACROSS_N; s++)
                sum[r][s] = matrix_multiply_add(matrix_splat_a(float16(0.0)),
                                                matrix_splat_b(float16(0.0)), sum[r][s]);
#endif

#define READ_A(k0)                                                                                 \
    READ_SLICE(a, WIDE_A, LOADS_A, CHUNKS_A, STEP_A, WIDTH_A, (TRANS_A ? k0 : row0),               \
               (TRANS_A ? K : pc.M), (TRANS_A ? row0 : k0), (TRANS_A ? pc.M : K))
#ifdef QUANTIZED
#define READ_B(k0)                                                                                 \
    READ_PACKED((TRANS_B ? column0 : k0), (TRANS_B ? pc.N : K), (TRANS_B ? k0 : column0),          \
                (TRANS_B ? K : pc.N))
#define UNPACK_B                                                                                   \
    [[unroll]] for (uint i = 0; i < LOADS_B; i++)                                                  \
        next_b[i] = unpacked_chunk(packed_b[i], offset);
#else
#define UNPACK_B
#define READ_B(k0)                                                                                 \
    READ_SLICE(b, WIDE_B, LOADS_B, CHUNKS_B, STEP_B, WIDTH_B, (TRANS_B ? column0 : k0),            \
               (TRANS_B ? pc.N : K), (TRANS_B ? k0 : column0), (TRANS_B ? K : pc.N))
#endif
#define WRITE_A(to) WRITE_SLICE(next_a, to, LOADS_A, CHUNKS_A, STEP_A, WIDTH_A, PITCH_A, SLICE_A)
#define WRITE_B(to)                                                                                \
    UNPACK_B                                                                                       \
    WRITE_SLICE(next_b, to + PARTS * SLICE_A, LOADS_B, CHUNKS_B, STEP_B, WIDTH_B, PITCH_B, SLICE_B)

    READ_A(0)
    READ_B(0)
#ifdef QUANTIZED
    barrier(); // the tables
#endif
    WRITE_A(0)
    WRITE_B(0)
    if (!LEAN) {
        READ_A(DEPTH)
        READ_B(DEPTH)
    }
    barrier();
#if SPLIT
    uint current = 0, next = STAGE;
#endif
    for (uint k0 = 0; k0 < K; k0 += DEPTH) {
#if !SPLIT
        // Not computed as one minus the other: with bounds known to the compiler, constant parts of
        // addresses need no instructions. With split operands that takes too many registers.
        const uint round = k0 / DEPTH, current = (round & 1) * STAGE, next = (~round & 1) * STAGE;
#endif
        if (!LEAN) { // past the end these read zeros, which are not used
            WRITE_A(next)
            WRITE_B(next)
            READ_A(k0 + 2 * DEPTH)
            READ_B(k0 + 2 * DEPTH)
        }
        const uint from_a = current + (ALONG_A ? sub_m * PITCH_A : sub_m / 8);
        const uint from_b = current + PARTS * SLICE_A + (ALONG_B ? sub_n * PITCH_B : sub_n / 8);
        [[unroll]] for (uint k = 0; k < DEPTH; k += FRAGMENT_K) {
            MATRIX_A a[ACROSS_M * PARTS];
            [[unroll]] for (uint r = 0; r < ACROSS_M; r++)
                [[unroll]] for (uint part = 0; part < PARTS; part++) {
                    const uint at = ALONG_A ? r * FRAGMENT_M * PITCH_A + k / 8
                                            : k * PITCH_A + r * FRAGMENT_M / 8;
                    a[r * PARTS + part] = matrix_load_a(stage[from_a + part * SLICE_A + at],
                                                        ALONG_A ? ROWS : COLUMNS, PITCH_A, SHARED);
                }
            [[unroll]] for (uint s = 0; s < ACROSS_N; s++) {
                MATRIX_B b[PARTS];
                [[unroll]] for (uint part = 0; part < PARTS; part++) {
                    const uint at = ALONG_B ? s * FRAGMENT_N * PITCH_B + k / 8
                                            : k * PITCH_B + s * FRAGMENT_N / 8;
                    b[part] = matrix_load_b(stage[from_b + part * SLICE_B + at],
                                            ALONG_B ? COLUMNS : ROWS, PITCH_B, SHARED);
                }
                [[unroll]] for (uint r = 0; r < ACROSS_M; r++) {
#if SPLIT > 1
                    // Units may truncate sums instead of rounding them, so the long sum is in fp32.
                    // Small products come first. The loops have constant bounds; otherwise some are
                    // not unrolled.
                    MATRIX_SUM part = matrix_splat(0.0);
                    [[unroll]] for (uint order = 0; order < PARTS; order++)
                        [[unroll]] for (uint i = 0; i < PARTS; i++)
                            if (i + order < PARTS)
                                part = matrix_multiply_add(a[r * PARTS + i],
                                                           b[PARTS - 1 - order - i], part);
                    sum[r][s] = matrix_add(sum[r][s], part);
#else
                    sum[r][s] = matrix_multiply_add(a[r], b[0], sum[r][s]);
#endif
                }
            }
        }
        if (LEAN) {
            READ_A(k0 + DEPTH)
            WRITE_A(next)
            READ_B(k0 + DEPTH)
            WRITE_B(next)
        }
        barrier();
#if SPLIT
        current = next;
        next = STAGE - current;
#endif
    }

    const uint lane = id - gl_SubgroupID * SUBGROUP_LANES, mine = gl_SubgroupID * PATCH;
    // Compilers do not unroll a loop that contains another one. If such a loop's counter indexed
    // the sums, all of them would be in memory, in the loop over k, too.
    for (uint r = 0; r < ACROSS_M; r++) {
        [[unroll]] for (uint i = 0; i < ACROSS_M; i++)
            if (i == r)
                [[unroll]] for (uint s = 0; s < ACROSS_N; s++)
                    matrix_store(stage[mine + s * FRAGMENT_N / 4], sum[i][s], ROWS, PATCH_PITCH,
                                 SHARED);
        barrier();
        for (uint quad = lane; quad < FRAGMENT_M * SUB_N / 4; quad += SUBGROUP_LANES) {
            const uint row = quad / (SUB_N / 4), column = quad % (SUB_N / 4);
            vec4 x[1], bias[1];
            Place at[1];
            x[0] = uintBitsToFloat(stage[mine + row * PATCH_PITCH + column]);
            at[0] = Place(row0 + sub_m + r * FRAGMENT_M + row, column0 + sub_n + 4 * column);
            bias[0] = load_bias(at[0].column);
            finish(x, bias, at);
        }
        barrier();
    }
}

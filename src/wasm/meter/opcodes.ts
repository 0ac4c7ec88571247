// Every instruction that may be run, in one table: its code, what follows it, its stack effect, its name.
// 1. What does not stand here is refused by name and offset (fail closed): code that cannot be followed cannot be
//    metered.
// 2. The table alone says what an instruction is; the rest of the room reads the arrays made of it
//    (instruction-set.ts).
// Source: WebAssembly core specification 3.0, chapter 5.4 and its index of instructions; relaxed SIMD; threads; the
// legacy exception proposal.

import type { ACT, IMMEDIATE } from '#wasm/meter/instruction-set.ts'

/** Lines: first code (hex), immediates, operands:results (i I f F v r, x for any), prefix, names of consecutive codes. */
export const ONE_BYTE = `
1 none : - nop
1a none x: - drop
1b none xxi:x - select
1c types xxi:x - select
20 index :x local. get
21 index x: local. set
22 index x:x local. tee
25 index i:r table. get
26 index ir: table. set
28 memory i:i i32. load
29 memory i:I i64. load
2a memory i:f f32. load
2b memory i:F f64. load
2c memory i:i i32. load8_s load8_u load16_s load16_u
30 memory i:I i64. load8_s load8_u load16_s load16_u load32_s load32_u
36 memory ii: i32. store
37 memory iI: i64. store
38 memory if: f32. store
39 memory iF: f64. store
3a memory ii: i32. store8 store16
3c memory iI: i64. store8 store16 store32
3f index :i memory. size
41 leb32 :i i32. const
42 leb64 :I i64. const
43 bytes4 :f f32. const
44 bytes8 :F f64. const
45 none i:i i32. eqz
46 none ii:i i32. eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
50 none I:i i64. eqz
51 none II:i i64. eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
5b none ff:i f32. eq ne lt gt le ge
61 none FF:i f64. eq ne lt gt le ge
67 none i:i i32. clz ctz popcnt
6a none ii:i i32. add sub mul div_s div_u rem_s rem_u and or xor shl shr_s shr_u rotl rotr
79 none I:I i64. clz ctz popcnt
7c none II:I i64. add sub mul div_s div_u rem_s rem_u and or xor shl shr_s shr_u rotl rotr
8b none f:f f32. abs neg ceil floor trunc nearest sqrt
92 none ff:f f32. add sub mul div min max copysign
99 none F:F f64. abs neg ceil floor trunc nearest sqrt
a0 none FF:F f64. add sub mul div min max copysign
a7 none I:i i32. wrap_i64
a8 none f:i i32. trunc_f32_s trunc_f32_u
aa none F:i i32. trunc_f64_s trunc_f64_u
ac none i:I i64. extend_i32_s extend_i32_u
ae none f:I i64. trunc_f32_s trunc_f32_u
b0 none F:I i64. trunc_f64_s trunc_f64_u
b2 none i:f f32. convert_i32_s convert_i32_u
b4 none I:f f32. convert_i64_s convert_i64_u
b6 none F:f f32. demote_f64
b7 none i:F f64. convert_i32_s convert_i32_u
b9 none I:F f64. convert_i64_s convert_i64_u
bb none f:F f64. promote_f32
bc none f:i i32. reinterpret_f32
bd none F:I i64. reinterpret_f64
be none i:f f32. reinterpret_i32
bf none I:F f64. reinterpret_i64
c0 none i:i i32. extend8_s extend16_s
c2 none I:I i64. extend8_s extend16_s extend32_s
d0 leb32 :r ref. null
d1 none r:i ref. is_null
d2 index :r ref. func
d3 none rr:i ref. eq
d4 none r:r ref. as_non_null`

/** After 0xfc. */
export const MISCELLANEOUS = `
0 none f:i i32. trunc_sat_f32_s trunc_sat_f32_u
2 none F:i i32. trunc_sat_f64_s trunc_sat_f64_u
4 none f:I i64. trunc_sat_f32_s trunc_sat_f32_u
6 none F:I i64. trunc_sat_f64_s trunc_sat_f64_u
9 index : data. drop
d index : elem. drop
10 index :i table. size`

/** After 0xfd. */
export const VECTOR = `
0 memory i:v v128. load load8x8_s load8x8_u load16x4_s load16x4_u load32x2_s load32x2_u
7 memory i:v v128. load8_splat load16_splat load32_splat load64_splat
b memory iv: v128. store
c bytes16 :v v128. const
d bytes16 vv:v i8x16. shuffle
e none vv:v i8x16. swizzle
f none i:v i8x16. splat
10 none i:v i16x8. splat
11 none i:v i32x4. splat
12 none I:v i64x2. splat
13 none f:v f32x4. splat
14 none F:v f64x2. splat
15 byte v:i i8x16. extract_lane_s extract_lane_u
17 byte vi:v i8x16. replace_lane
18 byte v:i i16x8. extract_lane_s extract_lane_u
1a byte vi:v i16x8. replace_lane
1b byte v:i i32x4. extract_lane
1c byte vi:v i32x4. replace_lane
1d byte v:I i64x2. extract_lane
1e byte vI:v i64x2. replace_lane
1f byte v:f f32x4. extract_lane
20 byte vf:v f32x4. replace_lane
21 byte v:F f64x2. extract_lane
22 byte vF:v f64x2. replace_lane
23 none vv:v i8x16. eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
2d none vv:v i16x8. eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
37 none vv:v i32x4. eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
41 none vv:v f32x4. eq ne lt gt le ge
47 none vv:v f64x2. eq ne lt gt le ge
4d none v:v v128. not
4e none vv:v v128. and andnot or xor
52 none vvv:v v128. bitselect
53 none v:i v128. any_true
54 memoryLane iv:v v128. load8_lane load16_lane load32_lane load64_lane
58 memoryLane iv: v128. store8_lane store16_lane store32_lane store64_lane
5c memory i:v v128. load32_zero load64_zero
5e none v:v f32x4. demote_f64x2_zero
5f none v:v f64x2. promote_low_f32x4
60 none v:v i8x16. abs neg popcnt
63 none v:i i8x16. all_true bitmask
65 none vv:v i8x16. narrow_i16x8_s narrow_i16x8_u
67 none v:v f32x4. ceil floor trunc nearest
6b none vi:v i8x16. shl shr_s shr_u
6e none vv:v i8x16. add add_sat_s add_sat_u sub sub_sat_s sub_sat_u
74 none v:v f64x2. ceil floor
76 none vv:v i8x16. min_s min_u max_s max_u
7a none v:v f64x2. trunc
7b none vv:v i8x16. avgr_u
7c none v:v i16x8. extadd_pairwise_i8x16_s extadd_pairwise_i8x16_u
7e none v:v i32x4. extadd_pairwise_i16x8_s extadd_pairwise_i16x8_u
80 none v:v i16x8. abs neg
82 none vv:v i16x8. q15mulr_sat_s
83 none v:i i16x8. all_true bitmask
85 none vv:v i16x8. narrow_i32x4_s narrow_i32x4_u
87 none v:v i16x8. extend_low_i8x16_s extend_high_i8x16_s extend_low_i8x16_u extend_high_i8x16_u
8b none vi:v i16x8. shl shr_s shr_u
8e none vv:v i16x8. add add_sat_s add_sat_u sub sub_sat_s sub_sat_u
94 none v:v f64x2. nearest
95 none vv:v i16x8. mul min_s min_u max_s max_u
9b none vv:v i16x8. avgr_u extmul_low_i8x16_s extmul_high_i8x16_s extmul_low_i8x16_u extmul_high_i8x16_u
a0 none v:v i32x4. abs neg
a3 none v:i i32x4. all_true bitmask
a7 none v:v i32x4. extend_low_i16x8_s extend_high_i16x8_s extend_low_i16x8_u extend_high_i16x8_u
ab none vi:v i32x4. shl shr_s shr_u
ae none vv:v i32x4. add
b1 none vv:v i32x4. sub
b5 none vv:v i32x4. mul min_s min_u max_s max_u dot_i16x8_s
bc none vv:v i32x4. extmul_low_i16x8_s extmul_high_i16x8_s extmul_low_i16x8_u extmul_high_i16x8_u
c0 none v:v i64x2. abs neg
c3 none v:i i64x2. all_true bitmask
c7 none v:v i64x2. extend_low_i32x4_s extend_high_i32x4_s extend_low_i32x4_u extend_high_i32x4_u
cb none vi:v i64x2. shl shr_s shr_u
ce none vv:v i64x2. add
d1 none vv:v i64x2. sub
d5 none vv:v i64x2. mul eq ne lt_s gt_s le_s ge_s
dc none vv:v i64x2. extmul_low_i32x4_s extmul_high_i32x4_s extmul_low_i32x4_u extmul_high_i32x4_u
e0 none v:v f32x4. abs neg
e3 none v:v f32x4. sqrt
e4 none vv:v f32x4. add sub mul div min max pmin pmax
ec none v:v f64x2. abs neg
ef none v:v f64x2. sqrt
f0 none vv:v f64x2. add sub mul div min max pmin pmax
f8 none v:v i32x4. trunc_sat_f32x4_s trunc_sat_f32x4_u
fa none v:v f32x4. convert_i32x4_s convert_i32x4_u
fc none v:v i32x4. trunc_sat_f64x2_s_zero trunc_sat_f64x2_u_zero
fe none v:v f64x2. convert_low_i32x4_s convert_low_i32x4_u
100 none vv:v i8x16. relaxed_swizzle
101 none v:v i32x4. relaxed_trunc_f32x4_s relaxed_trunc_f32x4_u
103 none v:v i32x4. relaxed_trunc_f64x2_s_zero relaxed_trunc_f64x2_u_zero
105 none vvv:v f32x4. relaxed_madd relaxed_nmadd
107 none vvv:v f64x2. relaxed_madd relaxed_nmadd
109 none vvv:v i8x16. relaxed_laneselect
10a none vvv:v i16x8. relaxed_laneselect
10b none vvv:v i32x4. relaxed_laneselect
10c none vvv:v i64x2. relaxed_laneselect
10d none vv:v f32x4. relaxed_min relaxed_max
10f none vv:v f64x2. relaxed_min relaxed_max
111 none vv:v i16x8. relaxed_q15mulr_s relaxed_dot_i8x16_i7x16_s
113 none vvv:v i32x4. relaxed_dot_i8x16_i7x16_add_s`

/** After 0xfe: legal on an unshared memory too. */
export const ATOMIC = `
0 memory ii:i memory.atomic. notify
1 memory iiI:i memory.atomic. wait32
2 memory iII:i memory.atomic. wait64
3 byte : atomic. fence
10 memory i:i i32.atomic. load
11 memory i:I i64.atomic. load
12 memory i:i i32.atomic. load8_u load16_u
14 memory i:I i64.atomic. load8_u load16_u load32_u
17 memory ii: i32.atomic. store
18 memory iI: i64.atomic. store
19 memory ii: i32.atomic. store8 store16
1b memory iI: i64.atomic. store8 store16 store32
${['add', 'sub', 'and', 'or', 'xor', 'xchg']
  .map((name, i) => {
    const at = (n: number): string => (0x1e + 7 * i + n).toString(16)
    const [word, i32, i64] = [`rmw.${name}`, `rmw8.${name}_u rmw16.${name}_u`, `rmw8.${name}_u`]
    return `${at(0)} memory ii:i i32.atomic. ${word}
${at(1)} memory iI:I i64.atomic. ${word}
${at(2)} memory ii:i i32.atomic. ${i32}
${at(4)} memory iI:I i64.atomic. ${i64} rmw16.${name}_u rmw32.${name}_u`
  })
  .join('\n')}
48 memory iii:i i32.atomic. rmw.cmpxchg
49 memory iII:I i64.atomic. rmw.cmpxchg
4a memory iii:i i32.atomic. rmw8.cmpxchg_u rmw16.cmpxchg_u
4c memory iII:I i64.atomic. rmw8.cmpxchg_u rmw16.cmpxchg_u rmw32.cmpxchg_u`

/** Those whose effect is not plain: code, what the walk does, immediates, name. */
export const SPECIAL: readonly [code: number, keyof typeof ACT, keyof typeof IMMEDIATE, string][] =
  [
    [0x00, 'unreachable', 'none', 'unreachable'],
    [0x02, 'block', 'block', 'block'],
    [0x03, 'loop', 'block', 'loop'],
    [0x04, 'if', 'block', 'if'],
    [0x05, 'else', 'none', 'else'],
    [0x06, 'try', 'block', 'try'],
    [0x07, 'catch', 'index', 'catch'],
    [0x08, 'throw', 'index', 'throw'],
    [0x09, 'throwAny', 'index', 'rethrow'],
    [0x0a, 'throwAny', 'none', 'throw_ref'],
    [0x0b, 'end', 'none', 'end'],
    [0x0c, 'branch', 'index', 'br'],
    [0x0d, 'branchIf', 'index', 'br_if'],
    [0x0e, 'branchTable', 'labels', 'br_table'],
    [0x0f, 'return', 'none', 'return'],
    [0x10, 'call', 'index', 'call'],
    [0x11, 'callIndirect', 'indexes', 'call_indirect'],
    [0x12, 'tailCall', 'index', 'return_call'],
    [0x13, 'tailCallIndirect', 'indexes', 'return_call_indirect'],
    [0x14, 'callRef', 'index', 'call_ref'],
    [0x15, 'tailCallRef', 'index', 'return_call_ref'],
    [0x18, 'delegate', 'index', 'delegate'],
    [0x19, 'catchAll', 'none', 'catch_all'],
    [0x1f, 'tryTable', 'catches', 'try_table'],
    [0x23, 'global', 'index', 'global.get'],
    [0x24, 'global', 'index', 'global.set'],
    [0x40, 'memoryGrow', 'index', 'memory.grow'],
    [0xd5, 'branchOnNull', 'index', 'br_on_null'],
    [0xd6, 'branchOnNonNull', 'index', 'br_on_non_null'],
    [0xfc_08, 'bytes', 'indexes', 'memory.init'],
    [0xfc_0a, 'bytes', 'indexes', 'memory.copy'],
    [0xfc_0b, 'bytes', 'index', 'memory.fill'],
    [0xfc_0c, 'elements', 'indexes', 'table.init'],
    [0xfc_0e, 'elements', 'indexes', 'table.copy'],
    [0xfc_0f, 'tableGrow', 'index', 'table.grow'],
    [0xfc_11, 'elements', 'index', 'table.fill'],
  ]

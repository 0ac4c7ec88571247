// The few opcodes that metering writes.

export const OP = {
  unreachable: 0x00,
  block: 0x02,
  if: 0x04,
  end: 0x0b,
  return: 0x0f,
  call: 0x10,
  select: 0x1b,
  localGet: 0x20,
  localSet: 0x21,
  localTee: 0x22,
  globalGet: 0x23,
  globalSet: 0x24,
  memorySize: 0x3f,
  memoryGrow: 0x40,
  i32Const: 0x41,
  i64Const: 0x42,
  f32Const: 0x43,
  f64Const: 0x44,
  i32Eq: 0x46,
  i64LtS: 0x53,
  i64GtS: 0x55,
  i64GtU: 0x56,
  f32Eq: 0x5b,
  f64Eq: 0x61,
  i64Add: 0x7c,
  i64Sub: 0x7d,
  i64Or: 0x84,
  i64Shl: 0x86,
  i64ShrU: 0x88,
  i64ExtendI32U: 0xad,
} as const

/** Of a block or an if: no value. */
export const BLOCK = { empty: 0x40 } as const

export const I32 = 0x7f
export const I64 = 0x7e
export const F32 = 0x7d
export const F64 = 0x7c
export const V128 = 0x7b

// Frames between a parent and its child, over the child's fd 0 (down) and fd 1 (up):
// u32le length of the payload | u8 kind | payload. JSON payloads are UTF-8.

/** Parent to child. */
export const DOWN = {
  /** JSON ChildProgram: the child's own program. */
  program: 1,
  /** Bytes of an artifact, or of a component to prepare. */
  bytes: 2,
  /** An Invoke and the first bytes of its stdin (`invokePayload`). */
  invoke: 3,
  /** Bytes of stdin, the answer to `want`; empty means the end. */
  stdin: 4,
  /** JSON PrepareRequest, then one `bytes` with the component. */
  prepare: 5,
  /** JSON LoadRequest, then one `bytes` with the artifact. */
  load: 6,
} as const

/** Child to parent. */
export const UP = {
  /** The program runs. */
  ready: 1,
  /** JSON { error? }: the artifact is compiled, or why not. */
  loaded: 2,
  stdout: 3,
  stderr: 4,
  /** The guest reads and nothing is left: send one `stdin`. */
  want: 5,
  /** JSON GuestResult. */
  result: 6,
  /** JSON PrepareResult, then on success one `bytes`. */
  prepared: 7,
  bytes: 8,
} as const

export const HEADER_BYTES = 5

/** No frame is longer: the largest carries an artifact. */
export const FRAME_BYTES_MAX = 256 * 1024 * 1024

export type Invoke = {
  args: string[]
  env: [string, string][]
  /** Whether the stdin that comes with it is all; else the rest is asked for. */
  stdinWhole: boolean
  /** Null: no limit but the time. */
  fuelMax: number | null
  /** Whether stdout goes on past its bound. */
  stdoutWhole: boolean
}

/** How a guest ended, as its child saw it. */
export type GuestEnd =
  | { kind: 'exited'; exitCode: number }
  | { kind: 'trap' | 'memory' | 'fuel' | 'fault'; message: string }

export type GuestResult = GuestEnd & {
  durationMs: number
  memPeakBytes: number
  /** Null: the artifact is not metered. */
  fuelUsed: number | null
  /** The child ends after this one. */
  last: boolean
  stdoutTruncated: boolean
  stderrTruncated: boolean
}

export type LoadRequest = { memMb: number }

export type PrepareRequest = { generatorUrl: string; minifierUrl: string; memMb: number }

export type PrepareResult =
  | { ok: true; kind: 'component' | 'preview1' }
  | { ok: false; reason: string; message: string }

export function putHeader(into: Uint8Array, kind: number, length: number): void {
  into[0] = length
  into[1] = length >>> 8
  into[2] = length >>> 16
  into[3] = length >>> 24
  into[4] = kind
}

export const lengthOf = (header: Uint8Array): number =>
  new DataView(header.buffer, header.byteOffset).getUint32(0, true)

export function frameHeader(kind: number, length: number): Uint8Array {
  const header = new Uint8Array(HEADER_BYTES)
  putHeader(header, kind, length)
  return header
}

/** u32le length of the JSON | JSON Invoke | stdin. */
export function invokePayload(request: Invoke, stdin: Uint8Array): Uint8Array {
  const json = JSON.stringify(request)
  const jsonBytes = Buffer.byteLength(json)
  const payload = Buffer.allocUnsafe(4 + jsonBytes + stdin.length)
  payload.writeUInt32LE(jsonBytes)
  payload.write(json, 4)
  payload.set(stdin, 4 + jsonBytes)
  return payload
}

/** In the child: `stdin` is a view into `payload`, which our own parent made by `invokePayload`. */
export function readInvoke(payload: Uint8Array): { request: Invoke; stdin: Uint8Array } {
  const at = 4 + lengthOf(payload)
  const request = JSON.parse(decoder.decode(payload.subarray(4, at))) as Invoke
  return { request, stdin: payload.subarray(at) }
}

const decoder = new TextDecoder()

export type Frame = { kind: number; payload: Buffer }

/** Cuts a byte stream into frames. Throws on a frame longer than `lengthMax`. */
export function frameReader(lengthMax: number): (chunk: Buffer) => Frame[] {
  let held: Buffer[] = []
  let heldBytes = 0
  let wanted = HEADER_BYTES
  return (chunk) => {
    held.push(chunk)
    heldBytes += chunk.length
    if (heldBytes < wanted) return []
    let rest = held.length === 1 ? chunk : Buffer.concat(held)
    const frames: Frame[] = []
    wanted = HEADER_BYTES
    while (rest.length >= HEADER_BYTES) {
      const length = rest.readUInt32LE(0)
      if (length > lengthMax) throw new Error(`a frame of ${length} bytes, over ${lengthMax}`)
      wanted = HEADER_BYTES + length
      if (rest.length < wanted) break
      frames.push({ kind: rest.readUInt8(4), payload: rest.subarray(HEADER_BYTES, wanted) })
      rest = rest.subarray(wanted)
      wanted = HEADER_BYTES
    }
    held = rest.length > 0 ? [rest] : []
    heldBytes = rest.length
    return frames
  }
}

// node componentize.ts CORE COMPONENT: turns a core module for WASI preview 1 into a
// `wasi:cli/command` component, with the preview 1 adapter that lies beside this file.
//
// The adapter knows only "success" and "failure" for proc_exit: exit code 3 would come out as 1.
// So the module's import of proc_exit is renamed first to wasi:cli/exit's `exit-with-code`, which
// has the same signature in core WASM, (i32) -> (), and goes round the adapter.
import { readFileSync, writeFileSync } from 'node:fs'
import { componentEmbed, componentNew } from '@bytecodealliance/jco-transpile/wasm-tools'

const adapterFile = new URL('./wasi_snapshot_preview1.command.wasm', import.meta.url)

/** The version of wasi:cli which the adapter imports; both must name the same interface. */
const wasiVersion = '0.2.12'
const exitInterface = `wasi:cli/exit@${wasiVersion}`

const exitWit = `package example:exit;
world exits { import ${exitInterface}; }
package wasi:cli@${wasiVersion} {
  interface exit { exit: func(status: result); exit-with-code: func(status-code: u8); }
}`

const headerBytes = 8
const importSection = 2
const functionImport = 0

/** LEB128, as WASM writes its unsigned numbers. */
function encodeUnsigned(value: number): number[] {
  const bytes: number[] = []
  let rest = value
  do {
    bytes.push(rest > 127 ? (rest & 127) | 128 : rest)
    rest >>>= 7
  } while (rest > 0)
  return bytes
}

function encodeName(name: string): number[] {
  const bytes = Buffer.from(name)
  return [...encodeUnsigned(bytes.length), ...bytes]
}

/** A place in a module that moves on as it is read. */
type Reader = { bytes: Uint8Array; at: number }

function readByte(reader: Reader): number {
  const byte = reader.bytes[reader.at]
  if (byte === undefined) throw new Error(`the module ends at byte ${reader.at}, inside something`)
  reader.at += 1
  return byte
}

function readUnsigned(reader: Reader): number {
  let value = 0
  for (let shift = 0; ; shift += 7) {
    const byte = readByte(reader)
    value += (byte & 127) * 2 ** shift
    if (byte < 128) return value
  }
}

function readName(reader: Reader): string {
  const length = readUnsigned(reader)
  reader.at += length
  return Buffer.from(reader.bytes.subarray(reader.at - length, reader.at)).toString('utf8')
}

/** The import section's body with proc_exit renamed; every import must be a function. */
function renameExit(body: Uint8Array): number[] {
  const reader = { bytes: body, at: 0 }
  const count = readUnsigned(reader)
  const out = encodeUnsigned(count)
  for (let i = 0; i < count; i++) {
    const module = readName(reader)
    const name = readName(reader)
    const kind = readByte(reader)
    if (kind !== functionImport) throw new Error(`import ${module} ${name} is not a function`)
    const isExit = module === 'wasi_snapshot_preview1' && name === 'proc_exit'
    out.push(...encodeName(isExit ? exitInterface : module))
    out.push(...encodeName(isExit ? 'exit-with-code' : name))
    out.push(kind, ...encodeUnsigned(readUnsigned(reader)))
  }
  return out
}

/** The module with its import of proc_exit renamed; all other sections as they were. */
function withExitCodes(module: Uint8Array): Uint8Array {
  const reader = { bytes: module, at: headerBytes }
  const parts: Uint8Array[] = [module.subarray(0, headerBytes)]
  while (reader.at < module.length) {
    const id = readByte(reader)
    const length = readUnsigned(reader)
    const body = module.subarray(reader.at, reader.at + length)
    reader.at += length
    const kept = id === importSection ? Uint8Array.from(renameExit(body)) : body
    parts.push(Uint8Array.from([id, ...encodeUnsigned(kept.length)]), kept)
  }
  return new Uint8Array(Buffer.concat(parts))
}

const [coreFile, componentFile] = process.argv.slice(2)
if (coreFile === undefined || componentFile === undefined) {
  throw new Error('usage: node componentize.ts CORE COMPONENT')
}
const embedded = await componentEmbed({
  binary: withExitCodes(readFileSync(coreFile)),
  witSource: exitWit,
  world: 'exits',
})
const adapter = readFileSync(adapterFile)
writeFileSync(componentFile, await componentNew(embedded, [['wasi_snapshot_preview1', adapter]]))

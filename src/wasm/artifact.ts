// The prepared form of a function: what a runner needs and nothing it must parse with care.
// Layout, version 1: magic 'clwa' | u32le header length | header (JSON, UTF-8) | module bytes, one after the other.
import { refuse } from '#wasm/binary/cursor.ts'

export type Artifact = {
  kind: 'component' | 'preview1'
  /** Names of the interfaces it imports, with versions; empty for preview1. */
  imports: string[]
  /** JavaScript that defines `instantiate(getCoreModule, imports, instantiateCore)`; empty for preview1. */
  glue: string
  /** Core modules by the name the glue asks for; a preview1 artifact has one, 'main'. */
  modules: { name: string; bytes: Uint8Array }[]
}

const MAGIC = 'clwa'
const VERSION = 1

/** An artifact: 64 MiB of component grows by its rewriting and its glue. */
export const ARTIFACT_BYTES_MAX = 192 * 1024 * 1024
const HEADER_BYTES_MAX = 32 * 1024 * 1024
const MODULES_MAX = 1000

type Header = {
  version: number
  kind: string
  imports: string[]
  glue: string
  modules: { name: string; length: number }[]
}

export function encodeArtifact(artifact: Artifact): Uint8Array {
  const { kind, imports, glue } = artifact
  const modules = artifact.modules.map(({ name, bytes }) => ({ name, length: bytes.length }))
  const header: Header = { version: VERSION, kind, imports, glue, modules }
  const head = new TextEncoder().encode(JSON.stringify(header))
  const total = artifact.modules.reduce((sum, { bytes }) => sum + bytes.length, 8 + head.length)
  const out = new Uint8Array(total)
  out.set(new TextEncoder().encode(MAGIC))
  new DataView(out.buffer).setUint32(4, head.length, true)
  out.set(head, 8)
  let at = 8 + head.length
  for (const { bytes } of artifact.modules) {
    out.set(bytes, at)
    at += bytes.length
  }
  return out
}

const bad = (what: string): Error =>
  refuse('BAD_ARTIFACT', `the artifact is unusable: ${what}`, 'prepare the component again')

const isStrings = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((one) => typeof one === 'string')

function isHeader(value: unknown): value is Header {
  if (typeof value !== 'object' || value === null) return false
  const header: Record<string, unknown> = { ...value }
  return (
    (header['kind'] === 'component' || header['kind'] === 'preview1') &&
    isStrings(header['imports']) &&
    typeof header['glue'] === 'string' &&
    Array.isArray(header['modules']) &&
    header['modules'].length <= MODULES_MAX &&
    header['modules'].every(
      (one: unknown) =>
        typeof one === 'object' &&
        one !== null &&
        'name' in one &&
        typeof one.name === 'string' &&
        'length' in one &&
        Number.isSafeInteger(one.length) &&
        Number(one.length) >= 8,
    )
  )
}

function headerOf(text: string): Header {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw bad('its header is not JSON')
  }
  const version =
    typeof value === 'object' && value !== null && 'version' in value ? value.version : undefined
  if (version !== VERSION) throw bad(`its version is ${String(version)}, expected ${VERSION}`)
  if (!isHeader(value)) throw bad('its header lacks a field')
  return value
}

/** Reads an artifact; refuses INVALID, reason BAD_ARTIFACT. Module bytes are views into `bytes`. */
export function decodeArtifact(bytes: Uint8Array): Artifact {
  if (bytes.length > ARTIFACT_BYTES_MAX)
    throw bad(`${bytes.length} bytes, over ${ARTIFACT_BYTES_MAX}`)
  if (bytes.length < 8 || new TextDecoder().decode(bytes.subarray(0, 4)) !== MAGIC)
    throw bad('it does not start with its magic')
  const headLength = new DataView(bytes.buffer, bytes.byteOffset).getUint32(4, true)
  if (headLength > HEADER_BYTES_MAX || 8 + headLength > bytes.length) throw bad('its header is cut')
  const header = headerOf(new TextDecoder().decode(bytes.subarray(8, 8 + headLength)))
  let at = 8 + headLength
  const modules = header.modules.map(({ name, length }) => {
    if (length > bytes.length - at) throw bad('a module is cut')
    const module = { name, bytes: bytes.subarray(at, at + length) }
    at += length
    return module
  })
  if (at !== bytes.length) throw bad(`${bytes.length - at} bytes follow its last module`)
  const kind = header.kind === 'component' ? 'component' : 'preview1'
  if (kind === 'preview1' && (modules.length !== 1 || header.glue !== ''))
    throw bad('a preview1 artifact holds one module and no glue')
  return { kind, imports: header.imports, glue: header.glue, modules }
}

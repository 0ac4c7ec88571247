// The world a function may import: WASI 0.2 `cli/command` without sockets and HTTP, and preview 1.
import { refuse } from '#wasm/binary/cursor.ts'
import type { Component } from '#wasm/binary/component.ts'
import type { CoreModule } from '#wasm/binary/core-module.ts'
import { quoted } from '#wasm/binary/safe-name.ts'

const method = (resource: string, names: string): string[] =>
  names.split(' ').map((one) => `[method]${resource}.${one}`)

/** Interfaces of WASI 0.2 by name without version, each with the functions our host has. */
export const OFFERED: Readonly<Record<string, readonly string[]>> = {
  'wasi:cli/environment': ['get-environment', 'get-arguments', 'initial-cwd'],
  'wasi:cli/exit': ['exit', 'exit-with-code'],
  'wasi:cli/stdin': ['get-stdin'],
  'wasi:cli/stdout': ['get-stdout'],
  'wasi:cli/stderr': ['get-stderr'],
  'wasi:cli/terminal-input': [],
  'wasi:cli/terminal-output': [],
  'wasi:cli/terminal-stdin': ['get-terminal-stdin'],
  'wasi:cli/terminal-stdout': ['get-terminal-stdout'],
  'wasi:cli/terminal-stderr': ['get-terminal-stderr'],
  'wasi:io/error': method('error', 'to-debug-string'),
  'wasi:io/poll': ['poll', ...method('pollable', 'ready block')],
  'wasi:io/streams': [
    ...method('input-stream', 'read blocking-read skip blocking-skip subscribe'),
    ...method(
      'output-stream',
      'check-write write blocking-write-and-flush flush blocking-flush subscribe write-zeroes ' +
        'blocking-write-zeroes-and-flush splice blocking-splice',
    ),
  ],
  'wasi:clocks/wall-clock': ['now', 'resolution'],
  'wasi:clocks/monotonic-clock': ['now', 'resolution', 'subscribe-instant', 'subscribe-duration'],
  'wasi:random/random': ['get-random-bytes', 'get-random-u64'],
  'wasi:random/insecure': ['get-insecure-random-bytes', 'get-insecure-random-u64'],
  'wasi:random/insecure-seed': ['insecure-seed', 'get-insecure-seed'],
  'wasi:filesystem/preopens': ['get-directories'],
  'wasi:filesystem/types': [
    'filesystem-error-code',
    ...method('directory-entry-stream', 'read-directory-entry'),
    ...method(
      'descriptor',
      'read-via-stream write-via-stream append-via-stream advise sync-data get-flags get-type set-size ' +
        'set-times read write read-directory sync create-directory-at stat stat-at set-times-at link-at ' +
        'open-at readlink-at remove-directory-at rename-at symlink-at unlink-file-at is-same-object ' +
        'metadata-hash metadata-hash-at',
    ),
  ],
}

/** The core import module of WASI preview 1. */
export const PREVIEW1 = 'wasi_snapshot_preview1'

/** Every function of preview 1: the host answers those of files and sockets with an errno. */
export const PREVIEW1_FUNCTIONS: readonly string[] = [
  'args_get args_sizes_get environ_get environ_sizes_get clock_res_get clock_time_get',
  'fd_advise fd_allocate fd_close fd_datasync fd_fdstat_get fd_fdstat_set_flags fd_fdstat_set_rights',
  'fd_filestat_get fd_filestat_set_size fd_filestat_set_times fd_pread fd_prestat_get',
  'fd_prestat_dir_name fd_pwrite fd_read fd_readdir fd_renumber fd_seek fd_sync fd_tell fd_write',
  'path_create_directory path_filestat_get path_filestat_set_times path_link path_open path_readlink',
  'path_remove_directory path_rename path_symlink path_unlink_file poll_oneoff proc_exit proc_raise',
  'sched_yield random_get sock_accept sock_recv sock_send sock_shutdown',
].flatMap((line) => line.split(' '))

const RUN = 'wasi:cli/run'
const VERSION_OFFERED = /^0\.2\.\d+$/

const split = (full: string): { base: string; version: string | undefined } => {
  const at = full.lastIndexOf('@')
  return at < 0
    ? { base: full, version: undefined }
    : { base: full.slice(0, at), version: full.slice(at + 1) }
}

/** 'wasi:cli/exit@0.2.12' → 'wasi:cli/exit'. */
export const interfaceOf = (full: string): string => split(full).base

const isOffered = (full: string): boolean => {
  const { base, version } = split(full)
  return Object.hasOwn(OFFERED, base) && version !== undefined && VERSION_OFFERED.test(version)
}

const list = (names: string[]): string => {
  const shown = names.slice(0, 12).map(quoted).join(', ')
  return names.length > 12 ? `${shown} and ${names.length - 12} more` : shown
}

function explainImport(full: string): string {
  const { base, version } = split(full)
  if (!Object.hasOwn(OFFERED, base)) return `${quoted(full)} (not offered)`
  return `${quoted(full)} (found version ${version ?? 'none'}, offered 0.2.x)`
}

function checkImports(component: Component): void {
  const refused = component.imports.filter((one) => one.sort !== 'type' && !isOffered(one.name))
  const odd = component.imports.filter((one) => one.sort !== 'instance')
  if (refused.length > 0 || odd.length > 0) {
    const names = [...new Set([...refused, ...odd].map((one) => one.name))]
    throw refuse(
      'IMPORT_REFUSED',
      `the component imports ${names.slice(0, 12).map(explainImport).join(', ')}` +
        (names.length > 12 ? ` and ${names.length - 12} more` : ''),
      `functions may import ${Object.keys(OFFERED).join(', ')}, each at 0.2.x`,
    )
  }
  for (const { name, functions } of component.imports) {
    if (functions === undefined)
      throw refuse(
        'IMPORT_REFUSED',
        `the component imports ${quoted(name)} by a type that it took from elsewhere`,
        'declare the type of the imported instance itself, as toolchains do',
      )
    const missing = functions.filter((one) => OFFERED[interfaceOf(name)]?.includes(one) !== true)
    if (missing.length > 0)
      throw refuse(
        'IMPORT_REFUSED',
        `the component imports ${list(missing)} of ${quoted(name)}, which this version has not`,
        'build with stable WASI 0.2 interfaces',
      )
  }
}

/** Refuses a component outside the offered world (IMPORT_REFUSED) or without `wasi:cli/run` (NO_RUN). */
export function checkWorld(component: Component): void {
  checkImports(component)
  const found = component.exports.filter((one) => interfaceOf(one.name) === RUN)
  if (found.some((one) => one.isInstance && VERSION_OFFERED.test(split(one.name).version ?? '')))
    return
  const exports = component.exports.map((one) => one.name)
  throw refuse(
    'NO_RUN',
    `the component exports ${exports.length === 0 ? 'nothing' : list(exports)}; a function exports ${RUN}@0.2.x`,
    'build a command (a program with main), not a library',
  )
}

/** Refuses a core module that is no preview 1 command: IMPORT_REFUSED or NO_RUN. */
export function checkPreview1(module: CoreModule): void {
  const refused = module.imports.filter(
    (one) =>
      one.module !== PREVIEW1 || one.kind !== 'func' || !PREVIEW1_FUNCTIONS.includes(one.name),
  )
  if (refused.length > 0)
    throw refuse(
      'IMPORT_REFUSED',
      `the module imports ${list(refused.map((one) => `${one.module} ${one.name}`))}; offered: functions of ${PREVIEW1}`,
      'build a plain WASI preview 1 program or a WASI 0.2 component',
    )
  const has = (name: string, kind: string): boolean =>
    module.exports.some((one) => one.name === name && one.kind === kind)
  if (!has('_start', 'func'))
    throw refuse(
      'NO_RUN',
      `the module exports no function "_start"; found ${module.exports.length === 0 ? 'nothing' : list(module.exports.map((one) => one.name))}`,
      'build a command (a program with main), not a library',
    )
  if (module.imports.length > 0 && !has('memory', 'memory'))
    throw refuse('NO_MEMORY', 'the module imports WASI functions but exports no memory "memory"')
}

// Names that may reach generated JavaScript.
// 1. The glue generator writes core import and export names into its output unescaped: a quote, a backslash,
//    a line break, a brace or a star in a name would be program text of the attacker's choice.
// 2. So every name of every module is checked, before any glue is made or evaluated anywhere.
import { refuse } from '#wasm/binary/cursor.ts'

/** Core names: what compilers emit (mangled names, 'cabi_post_…', '[resource-drop]…'), no quotes, no braces. */
const SAFE_CORE_NAME = /^[A-Za-z0-9_$.@:/#\-[\]<>=,|+ ]*$/

/** The generator's own adapters between two components' strings: 'utf8-to-utf8 (mem1 => mem0)'. */
const TRANSCODER_NAME = /^[a-z0-9-]+ \(mem\d+ => mem\d+\)$/

/** Component names: labels, interface names with versions, '[method]x.y'; none of 'url=<…>' and its kin. */
const SAFE_COMPONENT_NAME = /^[A-Za-z0-9.@:/\-[\]_+]+$/

/** Longer names are no compiler's; a bound keeps messages and glue small. */
const NAME_CHARS_MAX = 4096

/** Foreign text in a message: what is not printable ASCII is escaped (terminals obey some of it), the rest is cut. */
export const printable = (text: string, charsMax: number): string =>
  text
    .slice(0, charsMax)
    .replaceAll(/[^ -~]/g, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`)

/** A hostile name in a message. */
export const quoted = (text: string): string =>
  `"${printable(text, 80)}${text.length > 80 ? '…' : ''}"`

function check(text: string, what: string, safe: RegExp): void {
  if (text.length <= NAME_CHARS_MAX && safe.test(text) && text !== '__proto__') return
  throw refuse(
    'UNSAFE_NAME',
    `${what} ${quoted(text)} holds characters outside the safe set ${safe.source}`,
    'build with a standard toolchain, which emits no such names',
  )
}

export const checkCoreName = (text: string, what: string): void => {
  if (!TRANSCODER_NAME.test(text)) check(text, what, SAFE_CORE_NAME)
}

export const checkComponentName = (text: string, what: string): void =>
  check(text, what, SAFE_COMPONENT_NAME)

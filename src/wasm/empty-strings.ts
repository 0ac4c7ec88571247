// The generated glue hands an empty string to the guest without asking the guest for room. The canonical ABI asks for
// every string, of no bytes too (`store_string_copy` in the component model's CanonicalABI.md), and the preview 1
// adapter counts on it: it lays the variables out as they come, so after `EMPTY=` the next one would stand twice.

const SHORT_CUT = 'if (s.length === 0) { return { ptr: 1, len: 0 }; }'

/** The generator's glue, before it is minified. Throws on a form it does not know. */
export function allocateEmptyStrings(source: string): string {
  const [before, after, ...more] = source.split(SHORT_CUT)
  if (after !== undefined && more.length === 0) return `${before ?? ''}${after}`
  if (!source.includes('function _utf8AllocateAndEncode(')) return source
  throw new Error('the generator encodes strings in a form that this version does not know')
}

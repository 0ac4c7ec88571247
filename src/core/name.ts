/** What nodes and functions are called: a DNS label without upper case (seed 000, "Enrolling a node"). */
export const NAME_PATTERN = /^[a-z0-9][a-z0-9-]*$/
/** A DNS label's length (RFC 1035 §2.3.4): names become host names later. */
export const NAME_LENGTH_MAX = 63
export const NAME_RULE =
  'lowercase letters, digits and dashes, starting with a letter or a digit, at most 63 characters'

// How functions read to people.
export const placementText = (f: { allow_community: boolean }): string =>
  f.allow_community ? 'COMMUNITY OK' : 'SECURE ONLY'

/** Kilobytes, as the function list has them (000-57). */
export const kilobytes = (bytes: number): string => `${Math.ceil(bytes / 1024)} KB`

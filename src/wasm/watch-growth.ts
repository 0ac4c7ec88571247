export const watchGrowth = (bytes: Uint8Array): Uint8Array => bytes

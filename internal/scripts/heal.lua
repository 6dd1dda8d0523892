-- Acquires for a holder: this line, followed by acquire.lua. A key that is reserved for anybody is
-- free.

ARGV.free = string.sub(redis.call('GET', KEYS[1]) or '', 1, 14) == '~redlock:turn:'

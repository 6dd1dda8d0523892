-- Acquires for one whose turn it may be: this line, followed by acquire.lua. The last argument is
-- one more, its member: a key that is reserved for that is free.

ARGV.free = redis.call('GET', KEYS[1]) == '~' .. table.remove(ARGV)

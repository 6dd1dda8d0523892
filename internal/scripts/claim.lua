-- Acquires for one whose turn it may be: these lines, followed by acquire.lua. The last key is one
-- more, the queue, and so is the last argument, its member. A key that is reserved for the member
-- is free. Where there is no key, the member may still be in the queue, and leaves it with the key:
-- the next one would not learn when that expires.

local queue, member = table.remove(KEYS), table.remove(ARGV)
local held = redis.call('GET', KEYS[1])
ARGV.free = held == '~' .. member
ARGV.place = not held and {queue, member}

-- Acquires for one whose turn it may be: these lines, followed by acquire.lua. The last key is one
-- more, the queue, and so is the last argument, its member. A key that is reserved for the member
-- is free. Where there is no key, the member may still be in the queue, and leaves it: others would
-- not learn when the key that it sets expires.

local queue, member = table.remove(KEYS), table.remove(ARGV)
local v = redis.call('GET', KEYS[1])
if not v then redis.pcall('ZREM', queue, member) end
ARGV.free = v == '~' .. member

-- Asks whether the key holds the value.
--
--     KEYS: key   ARGV: value
--
-- It returns 1 if it does, 0 if there is no key or it is only reserved, -1 if the key is somebody
-- else's.

local v = redis.call('GET', KEYS[1])
if v == ARGV[1] then return 1 end
if v and string.sub(v, 1, 14) ~= '~redlock:turn:' then return -1 end
return 0

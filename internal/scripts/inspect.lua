-- Reads the key, whoever's it is, and its fence counter.
--
--     KEYS: key [fence]
--
-- It returns the value, the milliseconds until it expires, -1 for never, and the counter, "" if
-- there is none; nothing if there was no key.

local v = redis.call('GET', KEYS[1])
if not v then return {} end
local ttl = redis.call('PTTL', KEYS[1])
if KEYS[2] then return {v, ttl, redis.call('GET', KEYS[2]) or ''} end
return {v, ttl}

-- Sets the key's expiry anew if the key holds the value. PEXPIRE works on a node that is out of
-- memory, where SET does not.
--
--     KEYS: key [fence]   ARGV: value, expiry ms [, fence expiry ms]
--
-- A counter that lives for ever is not given.
--
-- It returns 1 if it did, 0 if there was no key or it is only reserved, -1 if the key is somebody
-- else's.

local v = redis.call('GET', KEYS[1])
if v == ARGV[1] then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	if KEYS[2] then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
	return 1
end
if v and string.sub(v, 1, 14) ~= '~redlock:turn:' then return -1 end
return 0

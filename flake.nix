# nix run github:OWNER/ouro
{
  description = "A terminal coding agent that remembers";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      forAll = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      # uv installs the locked packages at the first start into the cache of the user: several of them are wheels with
      # programs (ripgrep, the secret scanner) that nixpkgs does not have.
      packages = forAll (pkgs: {
        default = pkgs.writeShellApplication {
          name = "ouro";
          runtimeInputs = [ pkgs.git pkgs.python313 pkgs.uv ];
          text = ''
            exec uvx --python python3.13 --from ${self} ouro "$@"
          '';
        };
      });

      apps = forAll (pkgs: {
        default = {
          type = "app";
          program = "${self.packages.${pkgs.system}.default}/bin/ouro";
        };
      });
    };
}
